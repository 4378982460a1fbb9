"""Define what is said by the pipe between a worker process and who gives it work."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.write.commit import Manifest


@dataclass(frozen=True)
class Order:
    """What is asked of a worker: to call ``worker``, pickled (None: the one before), with ``arguments``."""

    number: int
    worker: bytes | None
    arguments: tuple


@dataclass(frozen=True)
class RowLease:
    """From now on rows of order ``number`` are in the worker's hands, for ``seconds`` at most; 0 lets go of them.

    ``keys`` None: it cannot say which. A hold replaces the one before of the same ``place``, a number of the worker's
    own, 0 where it does one thing at a time.
    """

    number: int
    place: int
    keys: tuple[str, ...] | None
    seconds: float


@dataclass(frozen=True)
class Found:
    """A part of what a function yields."""

    number: int
    found: Any


@dataclass(frozen=True)
class Done:
    """A worker's last word on an order."""

    number: int
    manifests: list[Manifest]
    error: BaseException | None = None
    trace: str = ""

    def result(self) -> list[Manifest]:
        """Return the manifests. Raises what the job raised, with the worker's traceback as a note."""
        if self.error is not None:
            self.error.add_note(f"In a worker process:\n{self.trace}")
            raise self.error
        return self.manifests
