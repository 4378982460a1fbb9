"""Define a work item: one worker's portion of a shard, or of several small ones."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any


@dataclass(frozen=True)
class WorkItem:
    """One worker's portion: the rows ``keys`` of ``shard``, to be read from ``paths``.

    ``tables`` names the scores that these rows lack; ``inputs`` carries small values a row (texts), aligned with
    ``keys``; among them ``before``, the commit of the row that is to be replaced. Never a path alone: deleted rows
    still stand in the file. ``joined`` are the items that this one was made of (`join`), () for one of a single shard.
    """

    shard: str
    keys: tuple[str, ...]
    paths: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict, compare=False)
    joined: tuple["WorkItem", ...] = ()

    @property
    def digest(self) -> str:
        """Hash what this item asks for (not its answer) to 32 hex digits.

        Where two recipes replace each other's rows in turn, the same texts are asked for again: ``before`` makes these
        items differ, or the third one's answer would be skipped as known.
        """
        replaced = (*self.inputs.get("input_digests", ()), *map(str, self.inputs.get("before", ())))
        text = "\x1f".join((self.shard, *self.tables, *self.keys, *replaced))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def only(self, keys: Sequence[str]) -> "WorkItem":
        """Return the item with these of its keys, and their inputs."""
        place = {key: n for n, key in enumerate(self.keys)}
        inputs = {name: [values[place[key]] for key in keys] for name, values in self.inputs.items()}
        among = set(keys)
        kept = [(item, [key for key in item.keys if key in among]) for item in self.joined]
        joined = tuple(item.only(mine) for item, mine in kept if mine)
        return WorkItem(self.shard, tuple(keys), self.paths, self.tables, inputs, joined)

    @property
    def by_shard(self) -> tuple["WorkItem", ...]:
        """The item's parts of a single shard each. What is made of each is a partition of its own."""
        return self.joined or (self,)


def join(items: Sequence[WorkItem]) -> WorkItem:
    """Make one item of several, mostly of different shards, which lack the same scores and have inputs a row."""
    first, *others = items
    if not others:
        return first
    inputs = {name: [*chain.from_iterable(item.inputs[name] for item in items)] for name in first.inputs}
    keys = tuple(chain.from_iterable(item.keys for item in items))
    paths = tuple(chain.from_iterable(item.paths for item in items))
    return WorkItem(f"{first.shard} and {len(others)} more", keys, paths, first.tables, inputs, tuple(items))
