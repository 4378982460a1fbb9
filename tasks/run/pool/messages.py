"""Define the messages on the pipe between a worker process and its supervisor."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.write.commit import Manifest


@dataclass(frozen=True)
class Order:
    """Request to call ``worker`` with ``arguments``; ``worker`` is a pickled callable, None for the previous one."""

    number: int
    worker: bytes | None
    arguments: tuple


@dataclass(frozen=True)
class RowLease:
    """Lease of rows of order ``number`` to the worker for ``seconds``; 0 seconds release it.

    ``keys`` are the leased rows, None if the worker does not know which rows are in progress. A lease replaces the
    previous lease with the same ``place``, a number chosen by the worker: 0 when it runs one item at a time.
    """

    number: int
    place: int
    keys: tuple[str, ...] | None
    seconds: float


@dataclass(frozen=True)
class RowsFinished:
    """Message that the worker has the results of ``rows`` more rows of order ``number``, which are not written yet."""

    number: int
    rows: int


@dataclass(frozen=True)
class Found:
    """Message with one value that the generator function of order ``number`` yielded."""

    number: int
    found: Any


@dataclass(frozen=True)
class Done:
    """Last message of an order: its manifests, or the error with its traceback."""

    number: int
    manifests: list[Manifest]
    error: BaseException | None = None
    trace: str = ""

    def result(self) -> list[Manifest]:
        """Return the manifests. Raises the job's error, with the worker's traceback as a note."""
        if self.error is not None:
            self.error.add_note(f"In a worker process:\n{self.trace}")
            raise self.error
        return self.manifests
