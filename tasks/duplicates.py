"""Group duplicates: near-equal pictures by perceptual hash and by embedding, joined into groups.

Edges are facts and append-only: a run compares only what came after the last comparison (by commit number), with
everything. Groups are the connected components of all edges, written whole when edges came; the cut picks the keeper.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from catalog.pending import duplicate_edges, index_ranges, training
from catalog.pending.item import WorkItem
from catalog.pending.training import IMAGES
from catalog.write.scorer import Scorer
from ops.whole import components, hamming, semantic
from tasks.cluster import range_name
from tasks.run.rows import read_range, to_halves
from tasks.run.session import Session
from tasks.run.stage import Part

# A picture's id is 32 hex digits, kept as the bytes that they stand for.
KEY_BYTES, NAMES_AT_ONCE = 16, 2**24
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def group_duplicates(session: Session) -> None:
    """Find new edges of both kinds, then regroup if there are any."""
    find_perceptual(session)
    find_semantic(session)
    regroup(session)


def find_perceptual(session: Session) -> None:
    """Find edges between hashes at most ``duplicates.phash`` bits apart; in this process, by 36 bytes a picture and 90
    more while they are compared: 200M pictures take 25 GB, and there it stops."""
    hashed = session.plan.scorer("image_hash")
    settings = {"phash": session.recipe.duplicates.phash}
    scorer = Scorer("perceptual_edges", "duplicate_edges", hamming.VERSION, settings, "", (hashed,))
    done = index_ranges.newest(session.lake, "duplicate_edges", session.use("perceptual_edges", scorer))
    if index_ranges.newest(session.lake, "image_hash", hashed) > done:
        session.compute("perceptual duplicates", 1, lambda: _compare_hashes(session, scorer.digest, done))


def _compare_hashes(session: Session, digest: str, done: int) -> None:
    keys, hashes, commits = duplicate_edges.hashes(session.lake, session.plan.scorer("image_hash"))
    left, right, distance = hamming.hamming_edges(hashes, commits > done, session.recipe.duplicates.phash)
    session.store(
        "perceptual duplicates",
        WorkItem("all", (str(done),)),
        [edges(names(keys, left), names(keys, right), distance, "perceptual", digest)],
    )


def find_semantic(session: Session) -> None:
    """Find edges between vectors of cosine >= ``duplicates.cosine`` that meet in a cluster, range by range."""
    index = session.plan.scorer(IMAGES.clusters)
    model = training.trained(session.lake, session.plan.scorer(IMAGES.centroids))
    if model is None:
        return
    # Of a cluster with very many alike each keeps its nearest `max_group`.
    settings = session.recipe.duplicates.model_dump(include={"cosine", "max_group"})
    scorer = Scorer("semantic_edges", "duplicate_edges", semantic.VERSION, settings, "", (index,))
    digest = session.use("semantic_edges", scorer)
    done = index_ranges.watermarks(session.lake, "duplicate_edges", digest)
    upto, paths = (
        index_ranges.newest(session.lake, "vector_index", index),
        index_ranges.index_paths(session.lake, index),
    )
    items = [
        WorkItem(name, (str(upto),), paths, inputs={"range": (first, last), "done": done.get(name, -1)})
        for first, last in index_ranges.ranges(model)
        if done.get(name := range_name(first, last), -1) < upto
    ]
    session.work(
        "semantic duplicates",
        items,
        SemanticEdges(session.recipe.duplicates.cosine, session.recipe.duplicates.max_group, digest),
    )


def names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """Write out the 32 hex digits of the keys at ``rows``; no text of Python is made."""
    portions = [rows[at : at + NAMES_AT_ONCE] for at in range(0, len(rows), NAMES_AT_ONCE)]
    return pa.chunked_array([_names(keys, portion) for portion in portions], pa.string())


def _names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    taken = keys.take(pa.array(rows))
    octets = np.frombuffer(b"".join(_data(chunk) for chunk in taken.chunks), np.uint8).reshape(-1, KEY_BYTES)
    digits = np.empty((len(octets), 2 * KEY_BYTES), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = DIGITS[octets >> 4], DIGITS[octets & 15]
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * 2 * KEY_BYTES
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(digits))


def _data(chunk: pa.Array) -> bytes:
    """Return the bytes of a chunk of keys, one behind the other."""
    held = chunk.cast(pa.binary(KEY_BYTES))
    return held.buffers()[1].slice(held.offset * KEY_BYTES, len(held) * KEY_BYTES).to_pybytes() if len(held) else b""


def edges(
    left: pa.Array | pa.ChunkedArray, right: pa.Array | pa.ChunkedArray, distance: np.ndarray, kind: str, digest: str
) -> Part:
    """Make rows of ``duplicate_edges``. None at all is a partition without rows: it counts as compared."""
    rows = {
        "a": left,
        "b": right,
        "kind": pa.array([kind] * len(left), pa.string()),
        "distance": pa.array(np.round(distance.astype(float), 4), pa.float64()),
    }
    return Part("duplicate_edges", pa.table(rows), digest)


@dataclass(frozen=True)
class SemanticEdges:
    """A job: find edges in one cluster range of the index, between pairs of one cluster with at least one new end."""

    threshold: float
    max_group: int
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        first, last = item.inputs["range"]
        rows = read_range(item.paths, ["key", "cluster", "index_vector", "commit"], first, last)
        keys, first_row, member = np.unique(rows["key"].to_numpy(), return_index=True, return_inverse=True)
        distinct = rows.take(pa.array(first_row))
        is_new = distinct["commit"].to_numpy() > item.inputs["done"]
        found = semantic.edges_within(
            to_halves(distinct["index_vector"]),
            is_new,
            member,
            rows["cluster"].to_numpy(),
            self.threshold,
            most=self.max_group,
        )
        left, right, similarity = found
        left, right = (pa.array(keys[ends], pa.string()) for ends in (left, right))
        return [edges(left, right, 1.0 - similarity, "semantic", self.scorer)]


def regroup(session: Session) -> None:
    """Group connected pictures over all edges; components over ``max_group`` keep only their tighter edges."""
    scorers = tuple(session.plan.scorer(name) for name in ("perceptual_edges", "semantic_edges"))
    settings = {"max_group": session.recipe.duplicates.max_group}
    scorer = Scorer("image_groups", "image_groups", components.VERSION, settings, "", scorers)
    digest = session.use("image_groups", scorer)
    newest_edge = max(index_ranges.newest(session.lake, "duplicate_edges", each) for each in scorers)
    is_new = index_ranges.newest(session.lake, "image_groups", digest) < newest_edge
    waiting = session.is_due("perceptual duplicates", "semantic duplicates")
    if waiting or (is_new and duplicate_edges.exist(session.lake, scorers)):
        session.compute("group duplicates", 1, lambda: _join_edges(session, scorers, digest, newest_edge))


def _join_edges(session: Session, scorers: tuple[str, ...], digest: str, newest_edge: int) -> None:
    keys, left, right, looseness = duplicate_edges.edges(session.lake, scorers)
    labels, oversized = components.recut(len(keys), (left, right), looseness, session.recipe.duplicates.max_group)
    for part in oversized:
        session.note(
            f"a duplicate group of {part.size} pictures (around {keys[part.label].as_py().hex()}) is over max_group: "
            f"it was cut into {part.parts} by keeping only tighter edges"
        )
    session.store("group duplicates", WorkItem("all", (str(newest_edge),)), [_groups(keys, labels, digest)])


def _groups(keys: pa.ChunkedArray, labels: np.ndarray, digest: str) -> Part:
    """Make ``image_groups`` rows. A group's id is its smallest member, so it does not depend on the order of union.

    Keys come in order: the first of a label is the smallest.
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    rows = {
        "sha256": names(keys, order),
        "group_id": names(keys, np.repeat(order[starts], sizes)),
        "group_size": pa.array(np.repeat(sizes, sizes), pa.int32()),
    }
    return Part("image_groups", pa.table(rows), digest)
