"""Define a work item: one worker's portion of a shard, or of several small shards."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class WorkItem:
    """One worker's portion of work: the rows ``keys`` of ``shard``, read from the files ``paths``.

    The keys are necessary besides the paths because the files may hold rows of other shards, and deleted rows.
    ``tables`` names the scores that these rows lack. ``inputs`` has small values per row (texts), aligned with
    ``keys``, among them ``before``, the commit of the row to replace. ``joined`` are the items that this item was
    merged from (`join`), () for an item of a single shard.
    """

    shard: str
    keys: tuple[str, ...]
    paths: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict, compare=False)
    joined: tuple["WorkItem", ...] = ()

    @property
    def digest(self) -> str:
        """Hash the request of this item (not the answer) to 32 hex digits.

        ``before`` tells items apart if two recipes replace each other's rows in turn, or the third is skipped.
        """
        replaced = (*self.inputs.get("input_digests", ()), *map(str, self.inputs.get("before", ())))
        text = "\x1f".join((self.shard, *self.tables, *self.keys, *replaced))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def only(self, keys: Sequence[str]) -> "WorkItem":
        """Return a work item with only these of its ``keys`` and their inputs."""
        place = {key: n for n, key in enumerate(self.keys)}
        inputs = {name: [values[place[key]] for key in keys] for name, values in self.inputs.items()}
        among = set(keys)
        kept = [(item, [key for key in item.keys if key in among]) for item in self.joined]
        joined = tuple(item.only(mine) for item, mine in kept if mine)
        return WorkItem(self.shard, tuple(keys), self.paths, self.tables, inputs, joined)

    @property
    def by_shard(self) -> tuple["WorkItem", ...]:
        """The single-shard items that this one was merged from, or the item itself; each results in one partition."""
        return self.joined or (self,)


def group_neighbours(items: Sequence[WorkItem], most: int) -> list[list[WorkItem]]:
    """Group neighbouring items that lack the same scores, with at most ``most`` keys per group."""
    groups: list[list[WorkItem]] = []
    n = 0
    for item in items:
        if not groups or n + len(item.keys) > most or item.tables != groups[-1][0].tables:
            groups.append([])
            n = 0
        groups[-1].append(item)
        n += len(item.keys)
    return groups


def join(items: Sequence[WorkItem]) -> WorkItem:
    """Merge items that lack the same scores into one item. Their inputs, one per row, are concatenated."""
    first, *others = items
    if not others:
        return first
    inputs = {name: [*chain.from_iterable(item.inputs[name] for item in items)] for name in first.inputs}
    keys = tuple(chain.from_iterable(item.keys for item in items))
    paths = tuple(chain.from_iterable(item.paths for item in items))
    return WorkItem(f"{first.shard} and {len(others)} more", keys, paths, first.tables, inputs, tuple(items))
