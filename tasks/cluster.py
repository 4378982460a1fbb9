"""Cluster: train centroids once, then give every vector its nearest ones.

Centroids are a model: trained on a hash-ranked sample of the eligible rows, committed, then frozen. They are retrained
only when the eligible rows outgrow those at training ``retrain_at`` times.

An assignment also writes ``vector_index``: the same vectors sorted by cluster, shard by shard, so that a cluster range
is read by skipping row groups. At 800M sentences a range touches one row group of every file; merging the files a
range (one full shuffle) is what to add when that many opens cost more than the search.
"""

import functools
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa

from catalog.pending import assignment, training
from catalog.pending.item import WorkItem
from catalog.pending.training import IMAGES, SENTENCES, Kind, Trained
from catalog.terms.ids import text_id
from catalog.terms.score import Stage
from catalog.write.scorer import Scorer
from ops.whole import kmeans
from tasks.calibrate import calibrate
from tasks.run.rows import on_disk, read_rows, read_table, to_blobs, to_vectors
from tasks.run.session import Session
from tasks.run.stage import Part

SAMPLE_A_CENTROID = 256  # faiss's own bound: more points a centroid move it by less than its noise
# With two levels a sample of 2M x 256 vectors of 1,024 dimensions would take a terabyte of scratch disk; faiss advises
# 39 at the least.
SAMPLE_OF_TWO_LEVELS = 64
ITERATIONS = 20


def cluster(session: Session) -> None:
    """Bring centroids, clusters and the three indices (sentences, images, images among sentences) up to date."""
    calibrate(session, "image", Stage.ASSOCIATE)
    calibrate(session, "sentence", Stage.ASSOCIATE)
    sentences = trained(session, SENTENCES, session.recipe.association.clusters)
    images = trained(session, IMAGES, session.recipe.balance.clusters)
    if sentences is not None:
        assign(session, SENTENCES, sentences, SENTENCES.clusters, probes=1)
        assign(session, IMAGES, sentences, "image_routes", probes=session.recipe.association.probes)
    if images is not None:
        assign(session, IMAGES, images, IMAGES.clusters, probes=session.recipe.duplicates.probes)


def trained(session: Session, kind: Kind, at_most: int) -> Trained | None:
    """Return the frozen centroids of ``kind``, trained now where there are none or the lake has outgrown them."""
    scorer = centroid_scorer(session, kind, at_most)
    session.use(kind.centroids, scorer)
    n = training.eligible(session.lake, session.plan, kind)
    found = training.trained(session.lake, scorer.digest)
    if found is not None and not outgrown(session, found, n):
        return found
    k = min(at_most, max(1, n // 40))
    if not session.compute(f"train {kind.kind} centroids", n, lambda: train(session, kind, scorer, k, n)):
        return None
    if found is not None:
        times = n / found.eligible
        session.note(
            f"{kind.kind} clusters were trained anew, on {n:,} rows, {times:.1f} times those of the training before: "
            "what was assigned to them, and what follows from that, was done again."
        )
    return training.trained(session.lake, scorer.digest)


def outgrown(session: Session, found: Trained, n: int) -> bool:
    """Tell whether ``n`` eligible rows ask for another training."""
    return n > session.recipe.association.retrain_at * found.eligible


def centroid_scorer(session: Session, kind: Kind, at_most: int) -> Scorer:
    settings = {"clusters": at_most, "seed": session.recipe.seed, "iterations": ITERATIONS}
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


def assign(session: Session, kind: Kind, model: Trained, name: str, probes: int) -> None:
    """Give each unassigned vector of ``kind`` its ``probes`` nearest centroids of ``model``."""
    made_from = (session.plan.scorer(kind.table), model.digest)
    settings = {"probes": probes, "routed": model.k > kmeans.FLAT_LIMIT}
    digest = session.use(name, Scorer(name, "clusters", kmeans.ASSIGN_VERSION, settings, "", made_from))
    waiting = assignment.pending_assignment(session.lake, session.plan, kind, digest)
    session.work_rounds(f"assign {name.replace('_', ' ')}", waiting, Assign(kind, model.path, probes, digest))


@dataclass(frozen=True)
class Assign:
    """A job: assign vectors of one shard, to ``clusters`` (the nearest) and ``vector_index`` (all probes)."""

    kind: Kind
    centroids: str
    probes: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        rows = read_rows(item, [self.kind.key, self.kind.column], self.kind.key)
        centroids, router = load_centroids(self.centroids)
        nearest = kmeans.assign(to_vectors(rows[self.kind.column]), centroids, self.probes, router)
        keys, blobs = rows[self.kind.key], rows[self.kind.column]
        kinds = pa.repeat(self.kind.kind, len(keys))
        clusters = pa.table({"kind": kinds, "key": keys, "cluster": pa.array(nearest[:, 0], pa.int32())})
        at, probe = np.nonzero(nearest >= 0)  # a routed vector may have met fewer centroids than it has probes
        index = pa.table(
            {
                "key": keys.take(pa.array(at)),
                "cluster": pa.array(nearest[at, probe], pa.int32()),
                "probe": pa.array(probe, pa.int32()),
                "index_vector": blobs.take(pa.array(at)),
            }
        ).sort_by([("cluster", "ascending"), ("key", "ascending")])
        return [Part("clusters", clusters, self.scorer), Part("vector_index", index, self.scorer)]


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
