"""Group near-equal images, and near-equal sentences: edges between members, then their connected components.

Perceptual edges join images by their hash, and strings by MinHash; semantic edges join both by their embedding, inside
clusters. Edges depend on no rule. They are facts and append-only: a run compares only rows that came after the last
comparison (by commit number), with all rows. Groups are rewritten as a whole when there are new edges; the cut chooses
each group's keeper. A sentence is in one cluster, so a pair across a cluster border has no semantic edge; strings are
compared across all clusters.

Grouping runs in one process: 16 bytes a member, 24 an edge, and 16 more a member while they are joined. 800M sentences,
a quarter of them copies as in RealSyn, have some 350M members with an edge; with three edges each that takes 35 GB, the
largest size that fits such a machine.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, index_ranges, training
from pairmill.catalog.pending.duplicate_edges import KEY_BYTES
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import IMAGES, SENTENCES, Kind
from pairmill.catalog.terms.scores import SENTENCE_SIGNATURE
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.text import minhash
from pairmill.ops.whole import components, hamming, semantic
from pairmill.ops.whole.hamming import near_in_order
from pairmill.tasks.relate.cluster import pending_ranges, range_files
from pairmill.tasks.run.items.index_rows import read_range
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import to_halves
from pairmill.tasks.run.session import Session

NAMES_AT_ONCE = 2**24
Compare = Callable[[str, int, str], Iterable[Part]]  # see `find_perceptual`


@dataclass(frozen=True)
class DuplicateKind:
    """Images or sentences to group by near-equality: the tables, scorers and steps of the grouping."""

    kind: Kind  # the kind of vectors that are compared
    noun: str  # name of the members in the plural, for messages
    signatures: str  # the table of the hashes or signatures that perceptual edges compare
    edges: str  # the table of edges
    groups: str  # the table of groups
    perceptual: str  # the scorer's name of perceptual edges
    semantic: str  # the scorer's name of semantic edges
    steps: tuple[str, str, str]  # the names of three steps: perceptual edges, semantic edges, grouping


PICTURES = DuplicateKind(
    IMAGES, "pictures", "image_hash", "duplicate_edges", "image_groups", "perceptual_edges", "semantic_edges",
    ("perceptual duplicates", "semantic duplicates", "group duplicates"),
)  # fmt: skip
TEXTS = DuplicateKind(
    SENTENCES, "sentences", SENTENCE_SIGNATURE.table, "sentence_edges", "sentence_groups", "sentence_perceptual_edges",
    "sentence_semantic_edges",
    ("perceptual sentence duplicates", "semantic sentence duplicates", "group sentence duplicates"),
)  # fmt: skip


def group_duplicates(session: Session) -> None:
    """Find new edges between near-equal images, of the kinds that the recipe compares, then regroup if there are any.

    Two hashes at most ``phash`` bits apart have an edge, two flat pictures only if their colours are near too. This
    process compares the hashes. An image takes 36 bytes and 90 more during the comparison; a flat one takes 225 and 110
    more. 200M images without a flat one, or 55M flat ones, take 26 GB, the largest size that fits.
    """
    settings = session.recipe.duplicates
    if settings.phash is not None:
        compared = {"phash": settings.phash} | ({"mirrored": True} if settings.mirrored else {})
        compare = partial(_compare_hashes, session, settings.phash, settings.mirrored)
        find_perceptual(session, PICTURES, hamming.VERSION, compared, compare)
    if settings.cosine is not None:
        find_semantic(session, PICTURES, settings.cosine, settings.max_group)
    if settings.is_on:
        regroup(session, PICTURES, settings.max_group, lambda rows: [rows])


def group_sentences(session: Session) -> None:
    """Find new edges between near-equal sentences, then regroup if there are any.

    Two sentences whose character 3-grams have a Jaccard similarity of at least ``jaccard`` have an edge;
    `catalog.pending.duplicate_edges` describes the search in this process and its limits. Does nothing if the recipe
    groups no sentences, or retrieves none.
    """
    settings = session.recipe.sentence_duplicates
    if settings is None or not session.recipe.association.is_on:
        return
    jaccard = settings.jaccard
    version, compared = minhash.JACCARD_VERSION, {"jaccard": jaccard}
    find_perceptual(session, TEXTS, version, compared, lambda *found: _compare_strings(session, jaccard, *found))
    if settings.cosine is not None:
        find_semantic(session, TEXTS, settings.cosine, settings.max_group)
    clusters = session.plan.scorer(SENTENCES.clusters)
    regroup(session, TEXTS, settings.max_group, lambda rows: duplicate_edges.by_cluster(session.lake, rows, clusters))


def find_perceptual(
    session: Session, family: DuplicateKind, version: int, settings: dict[str, Any], compare: Compare
) -> None:
    """Find edges between new signatures and all signatures, and commit them; do nothing without new signatures.

    ``compare(signed, done, digest)`` returns the edges as parts with the scorer ``digest``: of the signatures by the
    scorer ``signed`` that were committed after commit number ``done``. ``version`` and ``settings`` define that scorer.
    """
    signed = session.plan.scorer(family.signatures)
    scorer = Scorer(family.perceptual, family.edges, version, settings, "", (signed,))
    digest = session.use(family.perceptual, scorer)
    if session.is_measured:
        return
    done = index_ranges.newest(session.lake, family.edges, digest)
    if index_ranges.newest(session.lake, family.signatures, signed) > done:
        step, item = family.steps[0], WorkItem("all", (str(done),))
        session.compute(step, 1, lambda: session.store(step, item, compare(signed, done, digest)))


def _compare_hashes(session: Session, bits: int, mirrored: bool, signed: str, done: int, digest: str) -> list[Part]:
    """Return edges of image hashes after commit ``done`` to all; ``mirrored``, but for flat signs, to mirrored too."""
    keys, hashes, commits, flat, colours = duplicate_edges.hashes(session.lake, signed)
    left, right, distance = hamming.coloured_edges(hashes, commits > done, bits, flat, colours)
    if mirrored:
        rows = np.delete(np.arange(len(hashes)), flat)
        i, j, of_mirrored = hamming.mirrored_edges(hashes[rows], commits[rows] > done, bits)
        left, right = np.concatenate([left, rows[i]]), np.concatenate([right, rows[j]])
        distance = np.concatenate([distance, of_mirrored])
    return [edges(PICTURES.edges, names(keys, left), names(keys, right), np.asarray(distance), "perceptual", digest)]


def _compare_strings(session: Session, jaccard: float, signed: str, done: int, digest: str) -> Iterator[Part]:
    """Yield the edges of each block of candidates, 20,000 a second, after an empty part that records the comparison."""
    nobody = pa.array([], pa.string())
    yield edges(TEXTS.edges, nobody, nobody, minhash.jaccard([], []), "perceptual", digest)
    for block in duplicate_edges.near_candidates(session.lake, signed, done, jaccard, minhash.BANDS, near_in_order):
        likeness = minhash.jaccard(block["left"].to_pylist(), block["right"].to_pylist())
        near = (likeness >= jaccard).nonzero()[0]
        a, b = (block[end].take(near) for end in ("a", "b"))
        yield edges(TEXTS.edges, a, b, 1.0 - likeness[near], "perceptual", digest)


def find_semantic(session: Session, family: DuplicateKind, cosine: float, max_group: int) -> None:
    """Find and commit the edges between vectors of a common cluster whose cosine is at least ``cosine``."""
    index = session.plan.scorer(family.kind.clusters)
    if not index:  # no centroids are trained
        return
    # In a cluster of very many near-equal vectors each keeps edges to its nearest `max_group` only.
    settings = {"cosine": cosine, "max_group": max_group}
    scorer = Scorer(family.semantic, family.edges, semantic.VERSION, settings, "", (index,))
    digest = session.use(family.semantic, scorer)
    trained = session.plan.scorer(family.kind.centroids)
    model = None if session.is_measured else training.find_trained(session.lake, trained)
    if model is None:
        return
    upto = index_ranges.newest(session.lake, "vector_index", index)
    pending = pending_ranges(session, model, family.edges, digest, upto)
    files = {"files": range_files(session, model, index, bool(pending))}
    items = [WorkItem(name, (str(upto),), inputs=span | files) for name, span in pending.items()]
    session.work(family.steps[1], items, SemanticEdges(cosine, max_group, family.edges, digest))


@dataclass(frozen=True)
class SemanticEdges:
    """Job: find the edges of one cluster range between vectors of a common cluster, of which at least one is new."""

    unit: ClassVar[str] = "cluster ranges"

    threshold: float
    max_group: int
    table: str
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Find the edges of one range; return rows of the edge table."""
        files, columns = item.inputs["files"], ["key", "cluster", "index_vector", "commit"]
        rows = read_range(files.paths, columns, item.inputs["range"], files.is_small)
        keys, first_row, member = np.unique(rows["key"].to_numpy(), return_index=True, return_inverse=True)
        distinct = rows.take(pa.array(first_row))
        is_new = distinct["commit"].to_numpy() > item.inputs["done"]
        vectors, clusters = to_halves(distinct["index_vector"]), rows["cluster"].to_numpy()
        found = semantic.edges_within(vectors, is_new, member, clusters, self.threshold, most=self.max_group)
        left, right, similarity = found
        left, right = (pa.array(keys[ends], pa.string()) for ends in (left, right))
        return [edges(self.table, left, right, 1.0 - similarity, "semantic", self.scorer)]


def regroup(
    session: Session, family: DuplicateKind, max_group: int, arranged: Callable[[pa.Table], Iterable[pa.Table]]
) -> None:
    """Group the members that edges connect, and store the groups; do nothing without new edges.

    A component of over ``max_group`` members keeps only its tighter edges. ``arranged`` splits and orders the rows of
    groups for storage.
    """
    compared = (session.plan.scorer(name) for name in (family.perceptual, family.semantic))
    scorers = tuple(filter(None, compared))
    scorer = Scorer(family.groups, family.groups, components.VERSION, {"max_group": max_group}, "", scorers)
    digest = session.use(family.groups, scorer)
    if session.is_measured:
        return
    newest_edge = max((index_ranges.newest(session.lake, family.edges, each) for each in scorers), default=-1)
    is_new = index_ranges.newest(session.lake, family.groups, digest) < newest_edge
    waiting = session.is_due(*family.steps[:2])
    if waiting or (is_new and duplicate_edges.exist(session.lake, family.edges, scorers)):
        item = WorkItem("all", (str(newest_edge),))

        def join() -> None:
            rows = arranged(_join_members(session, family, max_group, scorers))
            session.store(family.steps[2], item, (Part(family.groups, block, digest) for block in rows))

        session.compute(family.steps[2], 1, join)


def _join_members(session: Session, family: DuplicateKind, max_group: int, scorers: tuple[str, ...]) -> pa.Table:
    """Return one row per member (key, ``group_id``, ``group_size``), sorted by group."""
    keys, left, right, looseness = duplicate_edges.edges(session.lake, family.edges, scorers)
    labels, oversized = components.recut(len(keys), (left, right), looseness, max_group)
    for part in oversized:
        session.note(
            f"a duplicate group of {part.size} {family.noun} (around {keys[part.label].as_py().hex()}) is over "
            f"max_group: it was cut into {part.parts} by keeping only tighter edges",
            once=True,
        )
    return _groups(family.kind.key, keys, labels)


def _groups(key: str, keys: pa.ChunkedArray, labels: np.ndarray) -> pa.Table:
    """Make the rows of groups. A group's id is its smallest member: the first of a label, as keys are sorted."""
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    ids, n = names(keys, np.repeat(order[starts], sizes)), pa.array(np.repeat(sizes, sizes), pa.int32())
    return pa.table({key: names(keys, order), "group_id": ids, "group_size": n})


def edges(table: str, left: Any, right: Any, distance: np.ndarray, kind: str, digest: str) -> Part:
    """Build a part of an edge table from arrays of ids and distances. Without rows it still records the comparison."""
    kinds = pa.array([kind] * len(left), pa.string())
    distances = pa.array(np.round(distance.astype(float), 4), pa.float64())
    return Part(table, pa.table({"a": left, "b": right, "kind": kinds, "distance": distances}), digest)


def names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """Return the keys (16 bytes each) at the indices ``rows`` as 32 hex digits, without creating Python strings."""
    portions = [rows[at : at + NAMES_AT_ONCE] for at in range(0, len(rows), NAMES_AT_ONCE)]
    return pa.chunked_array([_names(keys, portion) for portion in portions], pa.string())


def _names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """Return the hex digits of the keys at ``rows``, at most NAMES_AT_ONCE of them."""
    chunks = [chunk.cast(pa.binary(KEY_BYTES)) for chunk in keys.take(pa.array(rows)).chunks if len(chunk)]
    places = [(each.buffers()[1], each.offset * KEY_BYTES, len(each) * KEY_BYTES) for each in chunks]
    digits = b"".join(data.slice(start, length).to_pybytes() for data, start, length in places).hex().encode()
    offsets = np.arange(len(rows) + 1, dtype=np.int32) * 2 * KEY_BYTES
    return pa.StringArray.from_buffers(len(rows), pa.py_buffer(offsets), pa.py_buffer(digits))
