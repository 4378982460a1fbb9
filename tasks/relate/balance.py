"""Assign images to the clusters that balance caps, which are trained on the images that survive the cut up to the cap.

The clusters for the search of duplicates do not fit: an image that occurs there a thousand times has clusters of its
own copies, of which a cap would then keep one. RealSyn trains on the pairs that its last filter leaves; here the sample
is the survivors of all rules on facts known before generation, so that no cluster waits for a generated text.

Centroids are trained and frozen as in `cluster.py`. Every image with a vector is assigned, duplicates included:
which of them survive is then up to each cut, and an assignment is cheap (11 CPU-hours for RealSyn's 202M images, little
less for survivors alone). Vectors are not written again, because nothing is searched here.
"""

from dataclasses import dataclass
from typing import ClassVar

from pairmill.catalog.cut.cut import survivors
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SURVIVORS, Trained
from pairmill.catalog.terms.score import Stage
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.cluster import ClusterCount, Nearest, assign, assigned_by, frozen, grown
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session


def cluster_survivors(session: Session) -> None:
    """Update the centroids and clusters of balance, if the recipe caps them.

    New images are assigned before the cut that counts survivors. Clusters are among the cut's facts, which are then the
    same in every later cut of the run and are joined once.
    """
    calibrate(session, "image", Stage.CAPTION)
    calibrate(session, "sentence", Stage.CAPTION)
    settings = session.recipe.balance
    if settings.cap is None:
        return
    clustering = ClusterCount(SURVIVORS, settings.clusters, settings.per_cluster)
    found = frozen(session, clustering)
    if found is not None:
        _assign(session, found)
    survivors(session.lake, session.plan)
    model = grown(session, clustering, found)
    if model is not None and model != found:
        _assign(session, model)


def _assign(session: Session, model: Trained) -> None:
    """Assign new vectors to their nearest centroid of ``model``."""
    digest = assigned_by(session, SURVIVORS, model, SURVIVORS.clusters, probes=1)
    assign(session, SURVIVORS, SURVIVORS.clusters, digest, AssignNearest(Nearest(SURVIVORS, model.path, 1), digest))


@dataclass(frozen=True)
class AssignNearest:
    """Job: assign vectors of one shard to their nearest centroid, into ``clusters``."""

    unit: ClassVar[str] = "pictures"

    nearest: Nearest
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Assign the vectors of one item."""
        return [Part("clusters", self.nearest.clusters(*self.nearest(item)), self.scorer)]
