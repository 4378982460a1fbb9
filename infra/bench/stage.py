"""Benchmark how busy a stage keeps its model: seconds that a sleeping model works / wall seconds of the stage.

Pictures are JPEGs of 640 x 480, decoded and resized on CPUs. The model sleeps: like a GPU, it works without a CPU. The
same job runs one batch after the other (no feeders), in the local pool, and on Ray. Then a worker is killed in the
middle of a run, and the repeated batches are counted. Run as ``python -m infra.bench.stage``.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import simplejpeg

from infra.bench.measure import Row, finish, parser
from pairmill.catalog.pending.item import WorkItem
from pairmill.ops.image.decode import Decode
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.stage import JobStage

BATCH, ITEMS, BATCHES = 16, 12, 10
# Seconds a batch. Decoding one takes some 60 ms of a CPU, so two feeders keep up with the model.
MODEL_SECONDS = 0.1


@cache
def picture() -> bytes:
    """Return a JPEG of a photograph's size in bytes: a gradient with noise."""
    y, x = np.mgrid[0:480, 0:640]
    noise = np.random.default_rng(1).integers(0, 24, (480, 640, 3))
    pixels = np.stack([x * 255 / 640, y * 255 / 480, (x + y) * 255 / 1120], -1) + noise
    return simplejpeg.encode_jpeg(np.ascontiguousarray(pixels.clip(0, 255).astype(np.uint8)), quality=85)


@dataclass(frozen=True)
class Sleeping:
    """Model job whose model sleeps; it appends a line to ``folder``/batches for each batch: key, start, end."""

    item_rows: ClassVar[int] = BATCHES

    folder: str
    model: str = "sleeping"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Run the item's pieces one after another."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Write the process id to ``folder``/pid."""
        (Path(self.folder) / "pid").write_text(str(os.getpid()))

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield one piece a key; each key stands for a batch."""
        for key in item.keys:  # a key is a batch here
            yield Piece((key,), [picture()] * BATCH)

    def prepare(self, piece: Piece) -> tuple[str, list[Any]]:
        """Decode the batch's pictures."""
        decode = Decode(224)
        return piece.keys[0], [decode(data) for data in piece.data]

    def infer(self, ready: tuple[str, list[Any]]) -> tuple[str, float]:
        """Sleep for MODEL_SECONDS, and write the batch's line."""
        started = time.time()
        time.sleep(MODEL_SECONDS)
        with open(f"{self.folder}/batches", "a") as file:
            file.write(f"{ready[0]} {started} {time.time()}\n")
        return ready[0], started

    def fetch(self, running: tuple[str, float]) -> str:
        """Return the batch's key."""
        return running[0]

    def parts(self, item: WorkItem, found: list[str]) -> list[Part]:
        """Return one row a batch, with an empty vector."""
        table = pa.table({"sha256": found, "image_vector": [b""] * len(found)})
        return [Part("image_embedding", table, "s")]


def items() -> list[WorkItem]:
    """Return ITEMS work items of BATCHES batches each."""
    return [WorkItem(f"{n}", tuple(f"{n}-{batch}" for batch in range(BATCHES))) for n in range(ITEMS)]


def batches(folder: str) -> list[tuple[str, float, float]]:
    """Read (key, start, end) of each batch that was run."""
    path = Path(folder) / "batches"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(key, float(start), float(end)) for key, start, end in lines]


def busy(where: Placement) -> float:
    """Run the stage; return the share of wall time, from the first batch to the last, in which the model works."""
    with tempfile.TemporaryDirectory() as folder:
        with JobStage(Sleeping(folder), where) as stage:
            assert len(list(stage.run(items(), Output(f"{folder}/", "run", 1)))) == ITEMS
        made = batches(folder)
    wall = max(end for _, _, end in made) - min(start for _, start, _ in made)
    return sum(end - start for _, start, end in made) / wall


def repeated(where: Placement) -> int:
    """Kill the worker halfway; return the number of batches that were run again."""
    with tempfile.TemporaryDirectory() as folder:

        def kill() -> None:
            while len(batches(folder)) < ITEMS * BATCHES // 2 + BATCHES // 2:
                time.sleep(0.02)
            os.kill(int((Path(folder) / "pid").read_text()), signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        with JobStage(Sleeping(folder), where) as stage:
            assert len(list(stage.run(items(), Output(f"{folder}/", "run", 1)))) == ITEMS
        killer.join()
        return sum(n - 1 for n in Counter(key for key, _, _ in batches(folder)).values())


def placed(feeders: int, ray: str = "") -> Placement:
    """Return a placement of one replica; a local Ray gets 4 CPUs, enough for it."""
    return Placement(4 if ray else 1, ray, models={"sleeping": ModelPool(0.0, (1, 1), feeders)})


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__).parse_args()
    serial = busy(placed(0))
    rows = []
    for name, where in (("in the pool", placed(2)), ("on Ray", placed(2, "local"))):
        share = busy(where)
        rows.append(
            Row(f"a stage's model is busy, two feeders, {name}", "of wall time", round(share, 4), round(serial, 4),
                "without feeders", round(share / serial, 3), target=">= 0.95 of the model alone", met=share >= 0.95)
        )  # fmt: skip
    again = repeated(placed(2))
    rows.append(
        Row(f"batches made again after kill -9, of {ITEMS * BATCHES}, an item is {BATCHES}", "batches", again,
            target="<= one item a replica", met=again <= BATCHES)
    )  # fmt: skip
    finish("stage", rows, options)


if __name__ == "__main__":
    from infra.bench.stage import main as as_imported  # workers import the job by its module's name

    as_imported()
