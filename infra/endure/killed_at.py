"""Run `pairmill`, and kill this process (SIGKILL) at a chosen point: ``killed_at POINT ARGUMENT …``.

``before COMMIT N`` and ``after COMMIT N`` are the two ends of the N-th COMMIT. ``step NAME SECONDS`` is some time after
that step has taken its commit number. ``write N`` is the N-th end of a write of this process: a change of the catalog,
or a file that is closed, renamed or removed; ``write 0`` only counts them. At ``full N`` and ``full in NAME`` (as that
step begins) the disk is full instead, by the library of `fault_kinds.FULL_DISK`. ``SECONDS s`` is a moment after the
start.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.command.cli import main
from pairmill.tasks.run.items.partition import ParquetFile

ENDS = [0]  # ends of writes of this process so far, once they are counted


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def arm(point: str) -> None:
    """Patch this process so that it is killed at ``point``."""
    words = point.split()
    if words[0] == "step":
        _arm_step(" ".join(words[1:-1]), lambda: _kill_after(float(words[-1])))
    elif words[:2] == ["full", "in"]:
        _arm_step(" ".join(words[2:]), Path(os.environ["FULL_FLAG"]).touch)
    elif words[0] in ("write", "full"):
        _arm_writes(int(words[-1]), _kill if words[0] == "write" else Path(os.environ["FULL_FLAG"]).touch)
    elif words[-1] == "s":
        _kill_after(float(words[0]))
    else:
        _arm_commit(words[0], int(words[-1]))


def _kill_after(seconds: float) -> None:
    timer = threading.Timer(seconds, _kill)
    timer.daemon = True
    timer.start()


def _arm_step(name: str, strike: Callable[[], None]) -> None:
    begin = Writer.begin

    def begun(self: Writer, step: str, scorers: Sequence[Scorer] = ()) -> int:
        if step == name:
            strike()
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


def _arm_writes(last: int, strike: Callable[[], None]) -> None:
    lock = threading.Lock()

    def ends() -> None:
        with lock:
            ENDS[0] += 1
            if ENDS[0] == last:
                strike()

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **named: Any) -> Any:
            ends()
            result = call(*arguments, **named)
            ends()
            return result

        return called

    changing = Metadata.changing

    @contextmanager
    def changed(self: Metadata) -> Iterator[None]:
        ends()
        with changing(self):
            yield
            ends()
        ends()  # the catalog is sealed

    Metadata.changing = changed
    Metadata.retrying = counted(Metadata.retrying)
    ParquetFile.close = counted(ParquetFile.close)
    for module, names in ((os, ("replace", "rename", "unlink", "remove", "rmdir")), (shutil, ("rmtree",))):
        for name in names:
            setattr(module, name, counted(getattr(module, name)))


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
