"""Cluster: train centroids once, then give every vector its nearest ones.

Sentences have clusters to be found in, pictures have some in which their duplicates are; both stand before any
duplicate is known. The clusters that balance caps are others, of what is left: `tasks.relate.balance`.

Centroids are a model: trained on a hash-ranked sample of the eligible rows, committed, then frozen. They are retrained
only when the eligible rows outgrow those at training ``retrain_at`` times.

What is searched is written to ``vector_index`` as it is assigned: the same vectors sorted by cluster, shard by shard,
so that a cluster range is read by skipping row groups. At 800M sentences a range touches one row group of every file;
merging the files a range (one full shuffle) is what to add when that many opens cost more than the search.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import assignment, training
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import IMAGES, SENTENCES, Kind, Trained
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.whole import kmeans
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.run.partition import Job, Part
from pairmill.tasks.run.rows import on_disk, read_rows, read_table, to_blobs, to_vectors
from pairmill.tasks.run.session import Session

SAMPLE_A_CENTROID = 256  # faiss's own bound: more points a centroid move it by less than its noise
# With two levels a sample of 2M x 256 vectors of 1,024 dimensions would take a terabyte of scratch disk; faiss advises
# 39 at the least.
SAMPLE_OF_TWO_LEVELS = 64
ITERATIONS = 20
# Rows to a cluster of every lake before it could be set: not among the settings, so that its centroids stay in use.
FORMER_PER_CLUSTER = 40


@dataclass(frozen=True)
class ClusterCount:
    """Clusters to train of ``kind``: one for each ``per_cluster`` eligible rows, ``at_most`` so many."""

    kind: Kind
    at_most: int
    per_cluster: int

    def of(self, n: int) -> int:
        """Return the number of clusters of ``n`` rows: one at the least."""
        return min(self.at_most, max(1, n // self.per_cluster))


def cluster(session: Session) -> None:
    """Bring centroids, clusters and the three indices (sentences, images, images among sentences) up to date."""
    calibrate(session, "image", Stage.ASSOCIATE)
    calibrate(session, "sentence", Stage.ASSOCIATE)
    among, alike = session.recipe.association, session.recipe.duplicates
    sentences = trained(session, ClusterCount(SENTENCES, among.clusters, among.per_cluster))
    images = trained(session, ClusterCount(IMAGES, alike.clusters, alike.per_cluster))
    if sentences is not None:
        index(session, SENTENCES, sentences, SENTENCES.clusters, probes=1)
        index(session, IMAGES, sentences, "image_routes", probes=among.probes)
    if images is not None:
        index(session, IMAGES, images, IMAGES.clusters, probes=alike.probes)


def trained(session: Session, clustering: ClusterCount) -> Trained | None:
    """Return the frozen centroids, trained now where there are none or the lake has outgrown them."""
    return grown(session, clustering, frozen(session, clustering))


def frozen(session: Session, clustering: ClusterCount) -> Trained | None:
    """Return the centroids that the lake holds, None where there are none."""
    scorer = centroid_scorer(session, clustering)
    return training.trained(session.lake, session.use(clustering.kind.centroids, scorer))


def grown(session: Session, clustering: ClusterCount, found: Trained | None) -> Trained | None:
    """Return ``found``, or centroids trained now where there are none or the lake has outgrown them; None in a survey
    that finds they are to be trained, and where nothing is eligible."""
    kind = clustering.kind
    n = training.eligible(session.lake, session.plan, kind)
    if found is not None and not outgrown(session, found, n):
        return found
    scorer = centroid_scorer(session, clustering)
    k = clustering.of(n)
    if not session.compute(f"train {kind.kind} centroids", n, lambda: train(session, kind, scorer, k, n)):
        return None
    if found is not None:
        times = n / found.eligible
        session.note(
            f"{kind.kind} clusters were trained anew, on {n:,} rows, {times:.1f} times those of the training before: "
            "what was assigned to them, and what follows from that, was done again.",
            once=True,
        )
    return training.trained(session.lake, scorer.digest)


def outgrown(session: Session, found: Trained, n: int) -> bool:
    """Tell whether ``n`` eligible rows ask for another training."""
    return n > session.recipe.association.retrain_at * found.eligible


def centroid_scorer(session: Session, clustering: ClusterCount) -> Scorer:
    settings = {"clusters": clustering.at_most, "seed": session.recipe.seed, "iterations": ITERATIONS}
    if clustering.per_cluster != FORMER_PER_CLUSTER:
        settings["per_cluster"] = clustering.per_cluster
    kind = clustering.kind
    embedding = session.plan.scorer(kind.table)
    return Scorer(kind.centroids, "centroids", kmeans.TRAIN_VERSION, settings, "", (embedding,))


def train(session: Session, kind: Kind, scorer: Scorer, k: int, n: int) -> None:
    """Train ``k`` centroids on a sample on disk (TMPDIR): k-means holds one group of it at a time."""
    each = SAMPLE_A_CENTROID if k <= kmeans.FLAT_LIMIT else SAMPLE_OF_TWO_LEVELS
    with TemporaryDirectory(prefix="pairmill-") as folder:
        sample = on_disk(training.sample_blocks(session.lake, session.plan, kind, each * k), Path(folder) / "sample")
        centroids = kmeans.train(sample, k, seed=session.recipe.seed, iterations=ITERATIONS)
        del sample
    rows = pa.table(
        {
            "kind": [kind.kind] * k,
            "cluster": pa.array(range(k), pa.int32()),
            "vector": to_blobs(centroids),
            "n": pa.array([n] * k, pa.int64()),
        }
    )
    item = WorkItem(kind.kind, (scorer.digest, str(n)))
    session.store(f"train {kind.kind} centroids", item, [Part("centroids", rows, scorer.digest)])


def index(session: Session, kind: Kind, model: Trained, name: str, probes: int) -> None:
    """Give each vector of ``kind`` that has none its ``probes`` nearest centroids of ``model``, to be searched by."""
    digest = assigned_by(session, kind, model, name, probes)
    assign(session, kind, name, digest, Index(Nearest(kind, model.path, probes), digest))


def assigned_by(session: Session, kind: Kind, model: Trained, name: str, probes: int) -> str:
    """Have the plan read the clusters ``name`` as assigned by ``model``; return their scorer's digest."""
    made_from = (session.plan.scorer(kind.table), model.digest)
    settings = {"probes": probes, "routed": model.k > kmeans.FLAT_LIMIT}
    return session.use(name, Scorer(name, "clusters", kmeans.ASSIGN_VERSION, settings, "", made_from))


def assign(session: Session, kind: Kind, name: str, digest: str, job: Job) -> None:
    """Run ``job`` over the vectors of ``kind`` that the scorer ``digest`` has not assigned yet."""
    waiting = assignment.pending_assignment(session.lake, session.plan, kind, digest)
    session.work_rounds(f"assign {name.replace('_', ' ')}", waiting, job)


@dataclass(frozen=True)
class Nearest:
    """Find the nearest ``probes`` of the centroids in a file for the vectors of one item."""

    kind: Kind
    centroids: str
    probes: int

    def __call__(self, item: WorkItem) -> tuple[pa.Table, np.ndarray]:
        """Return the rows read, with ``kind.key`` and ``kind.column``, and their clusters (n, probes), -1 for none."""
        rows = read_rows(item, [self.kind.key, self.kind.column], self.kind.key)
        centroids, router = load_centroids(self.centroids)
        return rows, kmeans.assign(to_vectors(rows[self.kind.column]), centroids, self.probes, router)

    def clusters(self, rows: pa.Table, nearest: np.ndarray) -> pa.Table:
        """Make rows of ``clusters``: the nearest of each."""
        kinds = pa.repeat(self.kind.kind, len(rows))
        return pa.table({"kind": kinds, "key": rows[self.kind.key], "cluster": pa.array(nearest[:, 0], pa.int32())})


@dataclass(frozen=True)
class Index:
    """A job: assign vectors of one shard, to ``clusters`` (the nearest) and ``vector_index`` (all probes)."""

    nearest: Nearest
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows, nearest = self.nearest(item)
        keys, blobs = rows[self.nearest.kind.key], rows[self.nearest.kind.column]
        at, probe = np.nonzero(nearest >= 0)  # a routed vector may have met fewer centroids than it has probes
        found = pa.table(
            {
                "key": keys.take(pa.array(at)),
                "cluster": pa.array(nearest[at, probe], pa.int32()),
                "probe": pa.array(probe, pa.int32()),
                "index_vector": blobs.take(pa.array(at)),
            }
        ).sort_by([("cluster", "ascending"), ("key", "ascending")])
        clusters = self.nearest.clusters(rows, nearest)
        return [Part("clusters", clusters, self.scorer), Part("vector_index", found, self.scorer)]


@functools.lru_cache(maxsize=2)
def load_centroids(path: str) -> tuple[np.ndarray, kmeans.Router | None]:
    """Load (k, d) float32 in the order of their numbers, kept by the worker (2M x 1024: 8 GB), and a router for many.

    Past 65,536 centroids an exact scan costs over 100 MFLOP a vector; the router looks at the 16 nearest of sqrt(k)
    groups and finds the same centroid for 99.97 % of topical vectors.
    """
    table = read_table(path, ["cluster", "vector"]).sort_by("cluster")
    centroids = to_vectors(table["vector"])
    return centroids, kmeans.build_router(centroids) if len(centroids) > kmeans.FLAT_LIMIT else None


def range_name(first: int, last: int) -> str:
    """Return the shard name of a range of clusters."""
    return text_id("clusters", str(first), str(last))
