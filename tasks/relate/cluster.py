"""Train centroids once, then assign every vector to its nearest centroids (its clusters).

Sentence clusters are searched for matches, image clusters for duplicates; both exist before any duplicate is known.

The cap of ``balance`` uses further clusters, trained on the images that survive the cut up to the cap. The clusters for
the search of duplicates do not fit: an image with a thousand copies forms clusters of these copies alone, of which a
cap would then keep one. RealSyn trains on the pairs that its last filter leaves; here the sample is the survivors of
all rules on facts known before generation, so that no cluster waits for a generated text. Every image with a vector is
assigned, duplicates included: each cut decides which of them survive, and an assignment is cheap (11 CPU-hours for
RealSyn's 202M images, little less for survivors alone). The vectors are not indexed by these clusters, because no
search uses them.

Centroids are trained on a hash-ranked sample of the eligible rows, committed, then frozen. They are retrained only when
the eligible rows exceed ``retrain_at`` times those at training.

Vectors that are searched are written to ``vector_index`` when they are assigned: sorted by cluster, shard by shard, so
that a cluster range is read by skipping row groups. Where many ranges would open many files, these are merged first.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.cut import select_survivors
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.pending import index_ranges, row_files, training, worklist
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import IMAGES, SENTENCES, SURVIVORS, Kind, Trained
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.whole import kmeans
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.run.items import index_rows
from pairmill.tasks.run.items.partition import Job, Part
from pairmill.tasks.run.items.rows import on_disk, read_rows, read_table, to_blobs, to_vectors
from pairmill.tasks.run.session import Session

SAMPLE_A_CENTROID = 256  # faiss's own bound: more points a centroid move it by less than its noise
# For two-level clustering: 2M x 256 vectors of 1,024 dimensions would take a terabyte of scratch disk. faiss advises at
# least 39 points a centroid.
SAMPLE_OF_TWO_LEVELS = 64
ITERATIONS = 20


@dataclass(frozen=True)
class ClusterCount:
    """Number of clusters to train for ``kind``: one per ``per_cluster`` eligible rows, but no more than ``at_most``."""

    kind: Kind
    at_most: int
    per_cluster: int

    def of(self, n: int) -> int:
        """Return the number of clusters for ``n`` eligible rows, at least one."""
        return min(self.at_most, max(1, n // self.per_cluster))


def cluster(session: Session) -> None:
    """Update the centroids, clusters and indices that the recipe's association and duplicates search.

    There are three indices: sentences, images, and images among sentence clusters (their probes).
    """
    calibrate(session, Stage.ASSOCIATE)
    among, alike = session.recipe.association, session.recipe.duplicates
    of_images = ClusterCount(IMAGES, alike.clusters, alike.per_cluster)
    sentences = ensure_trained(session, sentence_clustering(session)) if among.is_on else None
    images = ensure_trained(session, of_images) if alike.cosine is not None else None
    if sentences is not None:
        index(session, SENTENCES, sentences, SENTENCES.clusters, probes=1)
        if among.recall is None:  # otherwise `route` finds the probes once sentences are grouped
            index(session, IMAGES, sentences, "image_routes", probes=among.probes)
    if images is not None:
        index(session, IMAGES, images, IMAGES.clusters, probes=alike.probes)


def cluster_survivors(session: Session) -> None:
    """Train centroids for ``balance.cap`` if needed, and assign new images to them; do nothing without a cap.

    New images are assigned before the cut that counts survivors: clusters are facts of a cut, and facts that stay the
    same in every later cut of the run are joined once.
    """
    calibrate(session, Stage.CAPTION)
    settings = session.recipe.balance
    if settings.cap is None:
        return
    clustering = ClusterCount(SURVIVORS, settings.clusters, settings.per_cluster)
    found = find_frozen(session, clustering)
    if found is not None:
        _assign_survivors(session, found)
        if session.is_measured:
            return
    select_survivors(session.lake, session.plan)
    model = retrain_if_outgrown(session, clustering, found)
    if model is not None and model != found:
        _assign_survivors(session, model)


def _assign_survivors(session: Session, model: Trained) -> None:
    """Assign new vectors to their nearest centroid of ``model``."""
    digest = use_assigned(session, SURVIVORS, model, SURVIVORS.clusters, probes=1)
    assign(session, SURVIVORS, SURVIVORS.clusters, digest, AssignNearest(Nearest(SURVIVORS, model.path, 1), digest))


def sentence_clustering(session: Session) -> ClusterCount:
    """Return how many sentence clusters to train, by the recipe's ``association``."""
    among = session.recipe.association
    return ClusterCount(SENTENCES, among.clusters, among.per_cluster)


def ensure_trained(session: Session, clustering: ClusterCount) -> Trained | None:
    """Return the frozen centroids; train them now if there are none or too many rows were added since training."""
    return retrain_if_outgrown(session, clustering, find_frozen(session, clustering))


def find_frozen(session: Session, clustering: ClusterCount) -> Trained | None:
    """Return the lake's frozen centroids by these settings, None if none are trained."""
    scorer = centroid_scorer(session, clustering)
    return training.find_trained(session.lake, session.use(clustering.kind.centroids, scorer))


def retrain_if_outgrown(session: Session, clustering: ClusterCount, found: Trained | None) -> Trained | None:
    """Return the frozen centroids ``found``; train new ones if there are none, or too many rows were added since.

    Returns None if no row is eligible, and in a survey if training is pending.
    """
    if found is not None and session.is_measured:
        return found
    kind = clustering.kind
    n = training.eligible(session.lake, session.plan, kind)
    if found is not None and n <= session.recipe.association.retrain_at * found.eligible:
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
    return training.find_trained(session.lake, scorer.digest)


def centroid_scorer(session: Session, clustering: ClusterCount) -> Scorer:
    """Return the scorer of centroids: its digest covers their number, seed, iterations and embedding."""
    settings = {"clusters": clustering.at_most, "per_cluster": clustering.per_cluster}
    settings |= {"seed": session.recipe.seed, "iterations": ITERATIONS}
    kind = clustering.kind
    embedding = session.plan.scorer(kind.table)
    return Scorer(kind.centroids, "centroids", kmeans.TRAIN_VERSION, settings, "", (embedding,))


def train(session: Session, kind: Kind, scorer: Scorer, k: int, n: int) -> None:
    """Train ``k`` centroids and commit them. The sample is on disk, in TMPDIR; k-means loads one group at a time.

    ``n`` is the number of eligible rows, stored to detect later when the lake has outgrown the centroids.
    """
    each = SAMPLE_A_CENTROID if k <= kmeans.FLAT_LIMIT else SAMPLE_OF_TWO_LEVELS
    with scratch_folder() as folder:
        sample = on_disk(training.sample_blocks(session.lake, session.plan, kind, each * k), folder / "sample")
        centroids = kmeans.train(sample, k, seed=session.recipe.seed, iterations=ITERATIONS)
        del sample
    columns = {"kind": [kind.kind] * k, "cluster": pa.array(range(k), pa.int32())}
    columns |= {"vector": to_blobs(centroids), "n": pa.array([n] * k, pa.int64())}
    item = WorkItem(kind.kind, (scorer.digest, str(n)))
    session.store(f"train {kind.kind} centroids", item, [Part("centroids", pa.table(columns), scorer.digest)])


def index(
    session: Session, kind: Kind, model: Trained, name: str, probes: int, found_by: Mapping[str, float] | None = None
) -> None:
    """Assign each unassigned vector of ``kind`` to its ``probes`` nearest centroids of ``model``, and index it.

    ``name`` is the scorer's name. ``found_by``: how ``probes`` was chosen, stored with the scorer's settings.
    """
    digest = use_assigned(session, kind, model, name, probes, found_by)
    assign(session, kind, name, digest, Index(Nearest(kind, model.path, probes), digest))


def use_assigned(
    session: Session, kind: Kind, model: Trained, name: str, probes: int, found_by: Mapping[str, float] | None = None
) -> str:
    """Restrict the plan to clusters ``name`` by the centroids ``model``; return the digest of their scorer."""
    made_from = (session.plan.scorer(kind.table), model.digest)
    settings = {"probes": probes, "routed": model.k > kmeans.FLAT_LIMIT, **(found_by or {})}
    return session.use(name, Scorer(name, "clusters", kmeans.ASSIGN_VERSION, settings, "", made_from))


def assign(session: Session, kind: Kind, name: str, digest: str, job: Job) -> None:
    """Run the assigning ``job`` over the vectors of ``kind`` that have no cluster by the scorer ``digest``."""
    waiting = worklist.pending_assignment(session.lake, session.plan, kind, digest)
    session.work_rounds(f"assign {name.replace('_', ' ')}", waiting, job)


@dataclass(frozen=True)
class Nearest:
    """Find the ``probes`` nearest centroids of each vector of an item."""

    kind: Kind
    centroids: str
    probes: int

    def __call__(self, item: WorkItem) -> tuple[pa.Table, np.ndarray]:
        """Return the item's rows (``kind.key``, ``kind.column``) and their cluster numbers (n, probes), -1 for none."""
        rows = read_rows(item, [self.kind.key, self.kind.column], self.kind.key)
        centroids, router = load_centroids(self.centroids)
        return rows, kmeans.assign(to_vectors(rows[self.kind.column]), centroids, self.probes, router)

    def clusters(self, rows: pa.Table, nearest: np.ndarray) -> pa.Table:
        """Return rows of ``clusters``: for each of ``rows`` its nearest centroid, the first column of ``nearest``."""
        kinds = pa.repeat(self.kind.kind, len(rows))
        return pa.table({"kind": kinds, "key": rows[self.kind.key], "cluster": pa.array(nearest[:, 0], pa.int32())})


@dataclass(frozen=True)
class Index:
    """Job: assign the vectors of one shard, into ``clusters`` (the nearest) and ``vector_index`` (all probes)."""

    nearest: Nearest
    scorer: str

    @property
    def unit(self) -> str:
        """Name of the assigned rows in the plural, for progress."""
        return self.nearest.kind.unit

    def __call__(self, item: WorkItem) -> list[Part]:
        """Assign the vectors of one item; return rows of ``clusters``, and of ``vector_index`` sorted by cluster."""
        rows, nearest = self.nearest(item)
        keys, blobs = rows[self.nearest.kind.key], rows[self.nearest.kind.column]
        at, probe = np.nonzero(nearest >= 0)  # the router may find fewer centroids than there are probes
        columns = {"key": keys.take(pa.array(at)), "cluster": pa.array(nearest[at, probe], pa.int32())}
        columns |= {"probe": pa.array(probe, pa.int32()), "index_vector": blobs.take(pa.array(at))}
        found = pa.table(columns).sort_by([("cluster", "ascending"), ("key", "ascending")])
        clusters = self.nearest.clusters(rows, nearest)
        return [Part("clusters", clusters, self.scorer), Part("vector_index", found, self.scorer)]


@dataclass(frozen=True)
class AssignNearest:
    """Job: assign vectors of one shard to their nearest centroid, into ``clusters``."""

    unit: ClassVar[str] = "pictures"

    nearest: Nearest
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Assign the vectors of one item; return rows of ``clusters``."""
        return [Part("clusters", self.nearest.clusters(*self.nearest(item)), self.scorer)]


@functools.lru_cache(maxsize=2)
def load_centroids(path: str) -> tuple[np.ndarray, kmeans.Router | None]:
    """Load the centroids, float32 (k, d) by cluster number, with a router if they are over 65,536, else None.

    The process caches two. 2M centroids of 1,024 dimensions take 8 GB. An exact scan of more than 65,536 centroids
    costs over 100 MFLOP a vector. The router searches the 16 nearest of sqrt(k) groups instead; it finds the same
    centroid for 99.97 % of topical vectors.
    """
    table = read_table(path, ["cluster", "vector"]).sort_by("cluster")
    centroids = to_vectors(table["vector"])
    return centroids, kmeans.build_router(centroids) if len(centroids) > kmeans.FLAT_LIMIT else None


def pending_ranges(session: Session, model: Trained, table: str, digest: str, upto: int) -> dict[str, dict[str, Any]]:
    """Return the cluster ranges that the scorer ``digest`` of ``table`` has not searched up to commit ``upto``.

    Returns by shard name ``range``, the first and the last cluster, and ``done``, the newest commit that a finished
    search covers, -1 for none.
    """
    done = index_ranges.watermarks(session.lake, table, digest)
    spans = {text_id("clusters", *map(str, span)): span for span in index_ranges.ranges(model)}
    pending = {name: {"range": span, "done": done.get(name, -1)} for name, span in spans.items()}
    return {name: inputs for name, inputs in pending.items() if inputs["done"] < upto}


def range_files(session: Session, model: Trained, scorer: str, is_pending: bool) -> row_files.IndexFiles:
    """Return the files to search a vector index in; many files are merged first.

    ``scorer`` is the digest of the assignment that wrote them. Merges from `index_rows.FEWEST` ranges and files on, if
    a range is pending; never in a survey, which only counts work.
    """
    files = row_files.index_files(session.lake, scorer)
    lasts = tuple(last for _, last in index_ranges.ranges(model))
    if not is_pending or files.is_small or len(lasts) < index_rows.FEWEST:
        return files
    found = [files]

    def merge() -> None:
        merged, loose = index_rows.split_merged(session.lake, files.paths)
        if todo := index_rows.groups(loose):
            if len(merged) + len(todo) > index_rows.MOST_MERGED:
                todo = index_rows.groups(files.paths)
            items = [WorkItem(text_id("merge", *paths), (), paths) for paths in todo]
            session.work("merge index files", items, index_rows.MergeIndex(session.lake.data_path, lasts))
            merged, loose = index_rows.split_merged(session.lake, files.paths)
        found.append(row_files.IndexFiles((*merged, *loose), False))

    session.follow(merge)
    return found[-1]
