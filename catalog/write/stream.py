"""Commit a stream of results every few seconds."""

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer


@dataclass(frozen=True)
class Totals:
    """Totals of a stream: new ``partitions``, already committed ones (``known``), rows, bytes and seconds of all."""

    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    known: int = 0


def commit_stream(
    writer: Writer,
    results: Iterable[Manifest | Sequence[Manifest]],
    max_files: int = 200,
    max_seconds: float = 5.0,
) -> Totals:
    """Commit results when ``max_files`` are pending, or ``max_seconds`` after the first of them; return the totals.

    A result may be a sequence of manifests (the tables that one shard wrote), which share a transaction. Finished
    results are committed even if the iterator raises, and on time if it stalls. Raises what `Writer.commit` raises.
    """
    pending = _Pending(writer, max_files)
    stop = threading.Event()
    clock = threading.Thread(target=pending.tick, args=(stop, max_seconds), name="commit", daemon=True)
    clock.start()
    try:
        for result in results:
            pending.add([result] if isinstance(result, Manifest) else list(result))
    finally:
        stop.set()
        clock.join()
        pending.flush()
    return pending.totals


class _Pending:
    """Finished results waiting for their commit, shared by the reading thread and the timer thread."""

    def __init__(self, writer: Writer, max_files: int) -> None:
        self.totals = Totals()
        self._writer = writer
        self._max_files = max_files
        self._waiting: list[Manifest] = []
        self._since = 0.0
        self._lock = threading.RLock()
        self._error: Exception | None = None

    def add(self, manifests: list[Manifest]) -> None:
        """Queue results; commit all once ``max_files`` are queued. Re-raise the timer thread's error, if any."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._since = self._since if self._waiting else time.monotonic()
            self._waiting += manifests
            if len(self._waiting) >= self._max_files:
                self.flush()

    def flush(self) -> None:
        """Commit all queued results and add them to ``totals``."""
        with self._lock:
            manifests = self._waiting
            if not manifests:
                return
            new = self._writer.commit(manifests)  # on failure all stay queued, for the last attempt at the end
            old, self._waiting = self.totals, []
            self.totals = Totals(
                old.partitions + new,
                old.rows + sum(m.rows for m in manifests),
                old.bytes + sum(m.bytes for m in manifests),
                old.seconds + sum(m.seconds for m in manifests),
                old.known + len(manifests) - new,
            )

    def tick(self, stop: threading.Event, max_seconds: float) -> None:
        """Commit whenever a result has waited ``max_seconds``, until ``stop`` is set; runs in the timer thread."""
        while not stop.wait(min(0.5, max_seconds)):
            with self._lock:
                if self._waiting and time.monotonic() - self._since >= max_seconds:
                    try:
                        self.flush()
                    except Exception as error:
                        self._error = error
                        return
