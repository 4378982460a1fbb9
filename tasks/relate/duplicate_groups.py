"""Join near-equal items of one kind into groups: edges inside clusters, and the connected components of all edges.

Edges are facts and append-only: a run compares only what came after the last comparison (by commit number), with
everything. Groups are written whole when edges came; the cut picks the keeper.

Grouping is one process's work: 16 bytes a member, 24 an edge and 16 more a member while they are joined. Of 800M
sentences, of which as in RealSyn a quarter are copies, some 350M have an edge; with three edges each that is 35 GB, and
beyond such a machine it stops.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, index_ranges, training
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import Kind
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.whole import components, semantic
from pairmill.tasks.relate.cluster import range_name
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.rows import read_range, to_halves
from pairmill.tasks.run.session import Session

# An item's id is 32 hex digits, kept as the bytes that they stand for.
KEY_BYTES, NAMES_AT_ONCE = 16, 2**24
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
Arranged = Callable[[pa.Table], Iterable[pa.Table]]


@dataclass(frozen=True)
class DuplicateKind:
    """What is grouped: vectors of ``kind``; ``edges`` and ``groups`` are the tables that hold the result.

    ``perceptual`` and ``semantic`` name the scorers of the two kinds of edges; ``steps`` say under which names edges of
    either kind and the groups are worked on; ``noun`` is the plural of a member.
    """

    kind: Kind
    noun: str
    edges: str
    groups: str
    perceptual: str
    semantic: str
    steps: tuple[str, str, str]


def find_semantic(session: Session, family: DuplicateKind, cosine: float, max_group: int) -> None:
    """Find edges between vectors of ``cosine`` or more that meet in a cluster, range by range."""
    index = session.plan.scorer(family.kind.clusters)
    model = training.trained(session.lake, session.plan.scorer(family.kind.centroids))
    if model is None:
        return
    # Of a cluster with very many alike each keeps its nearest `max_group`.
    settings = {"cosine": cosine, "max_group": max_group}
    scorer = Scorer(family.semantic, family.edges, semantic.VERSION, settings, "", (index,))
    digest = session.use(family.semantic, scorer)
    done = index_ranges.watermarks(session.lake, family.edges, digest)
    upto, paths = (
        index_ranges.newest(session.lake, "vector_index", index),
        index_ranges.index_paths(session.lake, index),
    )
    items = [
        WorkItem(name, (str(upto),), paths, inputs={"range": (first, last), "done": done.get(name, -1)})
        for first, last in index_ranges.ranges(model)
        if done.get(name := range_name(first, last), -1) < upto
    ]
    session.work(family.steps[1], items, SemanticEdges(cosine, max_group, family.edges, digest))


@dataclass(frozen=True)
class SemanticEdges:
    """A job: find edges in one cluster range of the index, between pairs of one cluster with at least one new end."""

    threshold: float
    max_group: int
    table: str
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
        return [edges(self.table, left, right, 1.0 - similarity, "semantic", self.scorer)]


def regroup(session: Session, family: DuplicateKind, max_group: int, arranged: Arranged) -> None:
    """Group connected members over all edges; components over ``max_group`` keep only their tighter edges.

    ``arranged`` gives the groups' rows as they are to be stored.
    """
    compared = (session.plan.scorer(name) for name in (family.perceptual, family.semantic))
    scorers = tuple(filter(None, compared))
    settings = {"max_group": max_group}
    scorer = Scorer(family.groups, family.groups, components.VERSION, settings, "", scorers)
    digest = session.use(family.groups, scorer)
    newest_edge = max(index_ranges.newest(session.lake, family.edges, each) for each in scorers)
    is_new = index_ranges.newest(session.lake, family.groups, digest) < newest_edge
    waiting = session.is_due(*family.steps[:2])
    if waiting or (is_new and duplicate_edges.exist(session.lake, family.edges, scorers)):
        item = WorkItem("all", (str(newest_edge),))

        def join() -> None:
            rows = arranged(_joined(session, family, max_group, scorers))
            session.store(family.steps[2], item, (Part(family.groups, block, digest) for block in rows))

        session.compute(family.steps[2], 1, join)


def _joined(session: Session, family: DuplicateKind, max_group: int, scorers: tuple[str, ...]) -> pa.Table:
    """Return a row a member: its key, ``group_id`` and ``group_size``; a group's members stand together."""
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
    """Make rows of groups. A group's id is its smallest member, so it does not depend on the order of union.

    Keys come in order: the first of a label is the smallest.
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    rows = {
        key: names(keys, order),
        "group_id": names(keys, np.repeat(order[starts], sizes)),
        "group_size": pa.array(np.repeat(sizes, sizes), pa.int32()),
    }
    return pa.table(rows)


def edges(
    table: str,
    left: pa.Array | pa.ChunkedArray,
    right: pa.Array | pa.ChunkedArray,
    distance: np.ndarray,
    kind: str,
    digest: str,
) -> Part:
    """Make rows of a table of edges. None at all is a partition without rows: it counts as compared."""
    rows = {
        "a": left,
        "b": right,
        "kind": pa.array([kind] * len(left), pa.string()),
        "distance": pa.array(np.round(distance.astype(float), 4), pa.float64()),
    }
    return Part(table, pa.table(rows), digest)


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
