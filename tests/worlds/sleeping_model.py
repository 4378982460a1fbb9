"""A model job whose model sleeps, and dies, hangs, tells or breaks its device at keys with these words."""

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.ops.models.device import run_notes
from pairmill.ops.models.device.engine import BrokenDevice
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.pool import model_line


@cache
def loaded(folder: str) -> bool:
    """Load the model, once a process; logs a line in ``loads``."""
    note(folder, "loads", str(os.getpid()))
    return True


def note(folder: str, name: str, line: str) -> None:
    """Append a line to a log file."""
    with open(f"{folder}/{name}", "a") as file:
        file.write(f"{line}\n")


def noted(folder: Path, name: str) -> list[str]:
    """Return the words of a log file."""
    path = folder / name
    return path.read_text().split() if path.exists() else []


@dataclass(frozen=True)
class Sleeps:
    """Job whose batches of ``batch`` rows take ``prepares`` seconds on a CPU and ``infers`` seconds on the device."""

    item_rows: ClassVar[int] = 64

    folder: str
    batch: int = 4
    prepares: float = 0.0
    infers: float = 0.0
    model: str = "clip"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        if (Path(self.folder) / "dies-loading").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        loaded(self.folder)

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        model_line.LEAST_SECONDS = model_line.FIRST_SECONDS = 2.0  # in this worker process alone
        for start in range(0, len(item.keys), rows or self.batch):
            yield Piece(item.keys[start : start + (rows or self.batch)], None)

    def prepare(self, piece: Piece) -> Piece:
        time.sleep(self.prepares)
        if any("crashes-decoder" in key for key in piece.keys):
            os.kill(os.getpid(), signal.SIGKILL)
        return piece

    def infer(self, ready: Piece) -> Piece:
        loaded(self.folder)
        note(self.folder, "inferred", "\n".join(ready.keys))
        note(self.folder, f"inferred-{os.getpid()}", "\n".join(ready.keys))
        time.sleep(self.infers)
        for key in ready.keys:
            if "dies" in key:
                os.kill(os.getpid(), signal.SIGKILL)
            if "hangs" in key:
                time.sleep(3600)
            if "breaks" in key:
                raise BrokenDevice("CUDA error: device-side assert triggered")
            if "tells" in key:
                run_notes.note("the model works slower: it says so")
            if "is-a-bug" in key:
                raise ZeroDivisionError(key)
        return ready

    def fetch(self, running: Piece) -> list[str]:
        return list(running.keys)

    def parts(self, item: WorkItem, found: list[Any]) -> list[Part]:
        keys = [key for piece in found for key in piece]
        vectors = [key.encode() for key in keys]
        return [Part("image_embedding", pa.table({"sha256": keys, "image_vector": vectors}), "s")]
