"""Bound the host memory of batches that are prepared but not yet on the device, in bytes."""

from __future__ import annotations

import threading
from dataclasses import fields, is_dataclass
from typing import Any


def held_bytes(value: Any) -> int:
    """Sum the bytes of all tensors and arrays in nested tuples, lists, dicts and dataclasses."""
    if (size := getattr(value, "nbytes", None)) is not None:
        return int(size)
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    if is_dataclass(value):
        return sum(held_bytes(getattr(value, field.name)) for field in fields(value))
    return len(value) if isinstance(value, bytes) else 0


class HeldBytes:
    """A budget of ``most`` bytes for prepared batches; 0: no limit.

    A batch's size is known only once it is prepared, so a new batch is assumed to be as large as the largest so far,
    and the first one is prepared alone. One batch is always admitted, however large it is.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held, self._largest = most, 0, 0
        self._preparing = self._ready = 0
        self._changed = threading.Condition()

    def reserve(self) -> None:
        """Wait until another batch may be prepared."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._preparing += 1

    def hold(self, size: int) -> None:
        """Account for a batch that is prepared."""
        with self._changed:
            self._preparing -= 1
            self._ready += 1
            self._held += size
            self._largest = max(self._largest, size)
            self._changed.notify_all()

    def release(self, size: int) -> None:
        """Account for a batch whose inputs are on the device, or that has failed."""
        with self._changed:
            self._ready -= 1
            self._held -= size
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if not self._most or not (self._preparing or self._ready):
            return True
        return bool(self._largest) and self._held + (self._preparing + 1) * self._largest <= self._most
