"""Define a work item: one worker's portion of a shard."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class WorkItem:
    """One worker's portion: the rows ``keys`` of ``shard``, to be read from ``paths``.

    ``tables`` names the scores that these rows lack; ``inputs`` carries small values a row (texts), aligned with
    ``keys``; among them ``before``, the commit of the row that is to be replaced. Never a path alone: deleted rows
    still stand in the file.
    """

    shard: str
    keys: tuple[str, ...]
    paths: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict, compare=False)

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
        return WorkItem(self.shard, tuple(keys), self.paths, self.tables, inputs)
