"""Give pictures the clusters that balance caps: of those that the cut lets through to the cap, duplicates gone.

The clusters in which duplicates are searched cannot be these: a picture that stands there a thousand times has clusters
of its own copies, of which a cap then keeps one. RealSyn trains on the pairs that its last filter left; here it is on
the survivors of all that is known before anything is generated, so that no cluster waits for a generated text.

Centroids are trained and frozen as in `tasks.relate.cluster`. Every picture with a vector is assigned, a duplicate too: whom a
rule lets through is then a matter of a cut, and an assignment costs little (at RealSyn's size 11 CPU-hours, of 202M
pictures; of survivors alone it would be some less). No vector is written again, since nothing is searched here.
"""

from dataclasses import dataclass

from pairmill.catalog.cut.cut import survivors
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SURVIVORS, Trained
from pairmill.catalog.terms.score import Stage
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.relate.cluster import ClusterCount, Nearest, assign, assigned_by, frozen, grown
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.session import Session


def cluster_survivors(session: Session) -> None:
    """Bring the centroids and clusters of balance up to date.

    What is new is assigned before the cut that counts survivors: clusters are among its facts, which are then the same
    in every later cut of the run, and joined once.
    """
    calibrate(session, "image", Stage.CAPTION)
    calibrate(session, "sentence", Stage.CAPTION)
    settings = session.recipe.balance
    clustering = ClusterCount(SURVIVORS, settings.clusters, settings.per_cluster)
    found = frozen(session, clustering)
    if found is not None:
        _assign(session, found)
    survivors(session.lake, session.plan)
    model = grown(session, clustering, found)
    if model is not None and model != found:
        _assign(session, model)


def _assign(session: Session, model: Trained) -> None:
    digest = assigned_by(session, SURVIVORS, model, SURVIVORS.clusters, probes=1)
    assign(session, SURVIVORS, SURVIVORS.clusters, digest, AssignNearest(Nearest(SURVIVORS, model.path, 1), digest))


@dataclass(frozen=True)
class AssignNearest:
    """A job: assign vectors of one shard to their nearest centroid, to ``clusters``."""

    nearest: Nearest
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        return [Part("clusters", self.nearest.clusters(*self.nearest(item)), self.scorer)]
