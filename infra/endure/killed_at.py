"""Run `pairmill`, and kill this process (SIGKILL) at a chosen point: ``killed_at POINT ARGUMENT …``.

``before COMMIT N`` and ``after COMMIT N`` are the two ends of the N-th COMMIT. ``step NAME SECONDS`` is some time after
that step has taken its commit number.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.command.cli import main


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Patch this process so that it is killed at ``point``."""
    words = point.split()
    if words[0] == "step":
        _arm_step(" ".join(words[1:-1]), float(words[-1]))
    else:
        _arm_commit(words[0], int(words[-1]))


def _arm_step(name: str, seconds: float) -> None:
    begin = Writer.begin

    def begun(self: Writer, step: str, scorers: Sequence[Scorer] = ()) -> int:
        if step == name:
            timer = threading.Timer(seconds, _kill)
            timer.daemon = True
            timer.start()
        return begin(self, step, scorers)

    Writer.begin = begun


def _arm_commit(end: str, number: int) -> None:
    changing, count = Metadata.changing, 0

    @contextmanager
    def counted(self: Metadata) -> Iterator[None]:
        nonlocal count
        count += 1
        if count == number and end == "before":
            _kill()
        with changing(self):
            yield
            if count == number:
                _kill()

    Metadata.changing = counted


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
