"""Join near-equal items of one kind into groups: edges inside clusters, then the connected components of all edges.

Edges are facts and append-only: a run compares only rows that came after the last comparison (by commit number), with
all rows. Groups are rewritten as a whole when there are new edges; the cut chooses each group's keeper.

Grouping runs in one process: 16 bytes a member, 24 an edge, and 16 more a member while they are joined. 800M sentences,
a quarter of them copies as in RealSyn, have some 350M members with an edge; with three edges each that takes 35 GB, the
largest size that fits such a machine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, index_ranges, training
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import Kind
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.whole import components, semantic
from pairmill.tasks.relate.cluster import range_name
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_range, to_halves
from pairmill.tasks.run.session import Session

# An item's id has 32 hex digits; in memory it is 16 raw bytes.
KEY_BYTES, NAMES_AT_ONCE = 16, 2**24
DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)
Arranged = Callable[[pa.Table], Iterable[pa.Table]]


@dataclass(frozen=True)
class DuplicateKind:
    """A kind of items to group by near-equality, with the tables, scorers and steps of the grouping.

    Attributes:
        kind: The vectors that are compared.
        noun: The plural of a member, for messages.
        edges: The table of edges.
        groups: The table of groups.
        perceptual: The scorer's name of perceptual edges.
        semantic: The scorer's name of semantic edges.
        steps: The names of three steps: perceptual edges, semantic edges, grouping.
    """

    kind: Kind
    noun: str
    edges: str
    groups: str
    perceptual: str
    semantic: str
    steps: tuple[str, str, str]


def find_semantic(session: Session, family: DuplicateKind, cosine: float, max_group: int) -> None:
    """Find edges between vectors in a common cluster with a cosine of at least ``cosine``, range by range."""
    index = session.plan.scorer(family.kind.clusters)
    model = training.trained(session.lake, session.plan.scorer(family.kind.centroids))
    if model is None:
        return
    # In a cluster of very many near-equal vectors each keeps edges to its nearest `max_group` only.
    settings = {"cosine": cosine, "max_group": max_group}
    scorer = Scorer(family.semantic, family.edges, semantic.VERSION, settings, "", (index,))
    digest = session.use(family.semantic, scorer)
    done = index_ranges.watermarks(session.lake, family.edges, digest)
    upto, files = (
        index_ranges.newest(session.lake, "vector_index", index),
        index_ranges.index_files(session.lake, index),
    )
    items = [
        WorkItem(name, (str(upto),), inputs={"range": (first, last), "done": done.get(name, -1), "files": files})
        for first, last in index_ranges.ranges(model)
        if done.get(name := range_name(first, last), -1) < upto
    ]
    session.work(family.steps[1], items, SemanticEdges(cosine, max_group, family.edges, digest))


@dataclass(frozen=True)
class SemanticEdges:
    """Job: find edges in one cluster range of the index, between pairs in a common cluster, at least one end new."""

    unit: ClassVar[str] = "cluster ranges"

    threshold: float
    max_group: int
    table: str
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Find the edges of one range."""
        files, columns = item.inputs["files"], ["key", "cluster", "index_vector", "commit"]
        rows = read_range(files.paths, columns, item.inputs["range"], files.is_small)
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
    """Group connected members over all edges. Components over ``max_group`` keep only their tighter edges.

    ``arranged`` splits the rows of groups into the tables to store, in their order.
    """
    compared = (session.plan.scorer(name) for name in (family.perceptual, family.semantic))
    scorers = tuple(filter(None, compared))
    settings = {"max_group": max_group}
    scorer = Scorer(family.groups, family.groups, components.VERSION, settings, "", scorers)
    digest = session.use(family.groups, scorer)
    newest_edge = max((index_ranges.newest(session.lake, family.edges, each) for each in scorers), default=-1)
    is_new = index_ranges.newest(session.lake, family.groups, digest) < newest_edge
    waiting = session.is_due(*family.steps[:2])
    if waiting or (is_new and duplicate_edges.exist(session.lake, family.edges, scorers)):
        item = WorkItem("all", (str(newest_edge),))

        def join() -> None:
            rows = arranged(_joined(session, family, max_group, scorers))
            session.store(family.steps[2], item, (Part(family.groups, block, digest) for block in rows))

        session.compute(family.steps[2], 1, join)


def _joined(session: Session, family: DuplicateKind, max_group: int, scorers: tuple[str, ...]) -> pa.Table:
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
    """Make the rows of groups. A group's id is its smallest member, independent of the order of union.

    Keys are sorted, so the first member of a label is the smallest.
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
    """Make the rows of an edge table. A part without rows still records the comparison."""
    rows = {
        "a": left,
        "b": right,
        "kind": pa.array([kind] * len(left), pa.string()),
        "distance": pa.array(np.round(distance.astype(float), 4), pa.float64()),
    }
    return Part(table, pa.table(rows), digest)


def names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.ChunkedArray:
    """Return the 32 hex digits of the keys at ``rows``, without creating Python strings."""
    portions = [rows[at : at + NAMES_AT_ONCE] for at in range(0, len(rows), NAMES_AT_ONCE)]
    return pa.chunked_array([_names(keys, portion) for portion in portions], pa.string())


def _names(keys: pa.ChunkedArray, rows: np.ndarray) -> pa.Array:
    """Return the hex digits of the keys at ``rows``, at most NAMES_AT_ONCE of them."""
    taken = keys.take(pa.array(rows))
    octets = np.frombuffer(b"".join(_data(chunk) for chunk in taken.chunks), np.uint8).reshape(-1, KEY_BYTES)
    digits = np.empty((len(octets), 2 * KEY_BYTES), np.uint8)
    digits[:, 0::2], digits[:, 1::2] = DIGITS[octets >> 4], DIGITS[octets & 15]
    offsets = np.arange(len(octets) + 1, dtype=np.int32) * 2 * KEY_BYTES
    return pa.StringArray.from_buffers(len(octets), pa.py_buffer(offsets), pa.py_buffer(digits))


def _data(chunk: pa.Array) -> bytes:
    """Return the concatenated bytes of a chunk of keys."""
    held = chunk.cast(pa.binary(KEY_BYTES))
    return held.buffers()[1].slice(held.offset * KEY_BYTES, len(held) * KEY_BYTES).to_pybytes() if len(held) else b""
