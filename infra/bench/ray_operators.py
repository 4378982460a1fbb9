"""Compare a model stage as Ray Data operators with Pairmill's own stage, on two nodes and a model that sleeps.

The operators are prepare (CPU tasks), infer (an actor with a GPU) and write, so that batches are prepared on a node
without a GPU and cross the object store. In Pairmill's stage threads beside the model prepare them. Both run the same
job on one cluster of two nodes of this machine, whose GPU is logical. Preparation only copies bytes: what is measured
is how the batches reach the model, and what a killed worker and a row that kills its worker cost. Run as
``python -m infra.bench.ray_operators``.
"""

from __future__ import annotations

import os
import pickle
import signal
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.measure import Row, finish, parser
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.stage import JobStage

BATCHES = 4  # of an item
KILLS = "kills"  # a row with this in its key kills the process that infers it
# A row that kills its worker is tried this often by Ray. By Ray Data's default it is tried for ever.
TRIES = 3


@dataclass(frozen=True)
class Shape:
    """The batches of a model: rows, bytes of a prepared row, rows that the model takes a second, number of batches."""

    name: str
    rows: int
    row_bytes: int
    rate: float
    batches: int

    @property
    def gigabytes(self) -> float:
        """The bytes of all prepared batches."""
        return self.batches * self.rows * self.row_bytes / 1e9

    def items(self, killer: bool = False) -> list[WorkItem]:
        """Return the work items; with ``killer`` one row in their middle kills its worker."""
        found = []
        for n in range(self.batches // BATCHES):
            keys = [f"{n}-{row}" for row in range(BATCHES * self.rows)]
            if killer and n == self.batches // BATCHES // 2:
                keys[len(keys) // 2] += KILLS
            found.append(WorkItem(f"{n}", tuple(keys)))
        return found


# A captioner's 25 pictures a second, a CLIP's 2,000.
CAPTIONER = Shape("3 MB a row, 25 a second", 8, 3_000_000, 25.0, 24)
CLIP = Shape("150 KB a row, 2,000 a second", 64, 150_000, 2000.0, 240)
SMALL = Shape("small rows", 8, 1_000, 80.0, 48)


@cache
def pixels(size: int) -> np.ndarray:
    """Return a prepared batch of ``size`` bytes, the same for all batches."""
    return np.random.default_rng(1).integers(0, 256, size, dtype=np.uint8)


@dataclass(frozen=True)
class Sleeping:
    """Model job whose model sleeps; it logs batches in ``folder``/batches and loads in ``folder``/loads."""

    item_rows: ClassVar[int] = 512

    folder: str
    shape: Shape
    model: str = "sleeping"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Run the item's pieces one after another."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Log the process id."""
        with open(f"{self.folder}/loads", "a") as file:
            file.write(f"{os.getpid()}\n")

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's keys in batches."""
        n = rows or self.shape.rows
        for start in range(0, len(item.keys), n):
            yield Piece(item.keys[start : start + n], None)

    def prepare(self, piece: Piece) -> tuple[tuple[str, ...], np.ndarray]:
        """Copy the bytes of a batch."""
        return piece.keys, pixels(len(piece.keys) * self.shape.row_bytes).copy()

    def infer(self, ready: tuple[tuple[str, ...], Any]) -> tuple[str, ...]:
        """Sleep as long as the model takes, and log the batch."""
        keys, started = ready[0], time.time()
        if any(KILLS in key for key in keys):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(len(keys) / self.shape.rate)
        with open(f"{self.folder}/batches", "a") as file:
            file.write(f"{','.join(keys)} {started} {time.time()}\n")
        return keys

    def fetch(self, running: tuple[str, ...]) -> tuple[str, ...]:
        """Return the batch's keys."""
        return running

    def parts(self, item: WorkItem, found: list[tuple[str, ...]]) -> list[Part]:
        """Return one row a key, with an empty vector."""
        keys = [key for each in found for key in each]
        return [Part("image_embedding", pa.table({"sha256": keys, "image_vector": [b""] * len(keys)}), "s")]


class Prepare:
    """Operator: turn a work item into batches, each a row of its keys and its bytes."""

    def __init__(self, job: Sleeping) -> None:
        self._job = job

    def __call__(self, batch: dict) -> Iterator[pa.Table]:
        """Yield a table of one row for each batch of the items."""
        for row in batch["item"]:
            item = pickle.loads(row)
            for piece in self._job.pieces(item):
                keys, data = self._job.prepare(piece)
                about = pickle.dumps((item.digest, keys))
                yield pa.table({"about": [about], "pixels": _without_copy(data)})


def _without_copy(data: np.ndarray) -> pa.Array:
    """Return an Arrow array of one value, these bytes."""
    offsets = pa.py_buffer(np.array([0, data.nbytes], np.int64))
    return pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(data)])


class Infer:
    """Operator: run the model on batches."""

    def __init__(self, job: Sleeping) -> None:
        self._job = job
        job.load()

    def __call__(self, batch: pa.Table) -> dict:
        """Return (item, keys) of each batch."""
        found = []
        for about, data in zip(batch["about"], batch["pixels"], strict=True):
            digest, keys = pickle.loads(about.as_py())
            ready = np.frombuffer(data.as_buffer(), np.uint8)
            found.append(pickle.dumps((digest, self._job.fetch(self._job.infer((keys, ready))))))
        return {"found": found}


def by_operators(job: Sleeping, items: list[WorkItem], output: Output) -> list[Manifest]:
    """Run the items by operators; write each item whose batches are all there, and return the manifests.

    Ray Data has no grouping that streams, so this process puts the batches of an item together.
    """
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.max_errored_blocks = -1
    context.target_max_block_size = 1  # a batch a block
    by_digest = {item.digest: item for item in items}
    found: dict[str, list[tuple[str, ...]]] = {digest: [] for digest in by_digest}
    source = ray.data.from_items([{"item": pickle.dumps(item)} for item in items], override_num_blocks=len(items))
    prepared = source.map_batches(
        Prepare, fn_constructor_args=(job,), batch_size=1, zero_copy_batch=True, num_cpus=1, resources={"feeders": 0.1},
        compute=ray.data.ActorPoolStrategy(size=2),
    )  # fmt: skip
    inferred = prepared.map_batches(
        Infer, fn_constructor_args=(job,), batch_size=1, batch_format="pyarrow", zero_copy_batch=True, num_gpus=1,
        compute=ray.data.ActorPoolStrategy(size=1, max_tasks_in_flight_per_actor=8),
        max_restarts=-1, max_task_retries=TRIES,
    )  # fmt: skip
    made = []
    for batch in inferred.iter_batches(batch_size=None, prefetch_batches=0):
        for row in batch["found"]:
            digest, keys = pickle.loads(row)
            found[digest].append(keys)
            item = by_digest[digest]
            if sum(map(len, found[digest])) == len(item.keys):
                made += write_parts(job.parts(item, found.pop(digest)), item, output)
    return made


def by_stage(job: Sleeping, items: list[WorkItem], output: Output) -> list[Manifest]:
    """Run the items by Pairmill's stage with two feeders beside the model; return the manifests."""
    where = Placement(ray_address="auto", models={"sleeping": ModelPool(1.0, (1, 1), 2)})
    with JobStage(job, where, name="bench") as stage:
        return [manifest for made in stage.run(items, output) for manifest in made]


CONTENDERS: dict[str, Callable[[Sleeping, list[WorkItem], Output], list[Manifest]]] = {
    "stage": by_stage,
    "operators": by_operators,
}


@dataclass(frozen=True)
class Outcome:
    """What a run did: share of wall time in which the model worked, CPU seconds of the cluster.

    Both are counted from the first batch on, so that starts do not count.

    Attributes:
        repeated: Rows that the model saw more than once.
        lost: Rows that no finished file has.
        loads: How often the model was loaded.
        seconds: From the first batch to the end of the run.
    """

    busy: float
    cpu: float
    repeated: int
    lost: int
    loads: int
    seconds: float


def run(name: str, shape: Shape, killer: bool = False, kill: bool = False) -> Outcome:
    """Run a contender; with ``killer`` a row kills its worker, with ``kill`` the worker is killed halfway."""
    with tempfile.TemporaryDirectory() as folder:
        items = shape.items(killer)
        if kill:
            threading.Thread(target=_kill_halfway, args=(folder, shape), daemon=True).start()
        before: list[float] = []
        watch = threading.Thread(target=_cpu_at_first_batch, args=(folder, before), daemon=True)
        watch.start()
        manifests = CONTENDERS[name](Sleeping(folder, shape), items, Output(f"{folder}/", "run", 1))
        watch.join()
        ended, cpu = time.time(), _cpu_seconds() - before[0]
        made = _batches(folder)
        first, last = min(start for _, start, _ in made), max(end for *_, end in made)
        seen = Counter(key for keys, *_ in made for key in keys)
        written = _written(manifests)
        return Outcome(
            busy=sum(end - start for _, start, end in made) / (last - first),
            cpu=cpu,
            repeated=sum(n - 1 for n in seen.values()),
            lost=sum(len(item.keys) for item in items) - written,
            loads=len((Path(folder) / "loads").read_text().split()),
            seconds=ended - first,
        )


def _batches(folder: str) -> list[tuple[list[str], float, float]]:
    """Return (keys, start, end) of each batch that the model has finished."""
    path = Path(folder) / "batches"
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(keys.split(","), float(start), float(end)) for keys, start, end in lines]


def _written(manifests: list[Manifest]) -> int:
    """Count the distinct keys in a run's files of results."""
    files = [manifest.path for manifest in manifests if manifest.table == "image_embedding"]
    return len({key for path in files for key in pq.ParquetFile(path).read()["sha256"].to_pylist()})


def _kill_halfway(folder: str, shape: Shape) -> None:
    """Kill the process of the model when half of the batches are done."""
    while len(_batches(folder)) < shape.batches // 2:
        time.sleep(0.02)
    os.kill(int((Path(folder) / "loads").read_text().split()[-1]), signal.SIGKILL)


def _cpu_at_first_batch(folder: str, found: list[float]) -> None:
    """Append the CPU seconds of the cluster when the model has finished its first batch."""
    while not _batches(folder):
        time.sleep(0.05)
    found.append(_cpu_seconds())


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of all that live below it, the cluster's among them."""
    found = 0.0
    for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def _compared(what: str, unit: str, ours: float, operators: float, target: str, met: bool, note: str = "") -> Row:
    """Return a row that compares the stage with the operators."""
    return Row(what, unit, ours, operators, "operators", round(ours / operators, 3), target=target, met=met, note=note)


def measured(rounds: int) -> list[Row]:
    """Run all comparisons on the cluster that this process has joined; speed is the median of ``rounds`` runs."""
    rows = []
    for shape in (CAPTIONER, CLIP):
        of = {name: [] for name in CONTENDERS}
        for _ in range(rounds):
            for name in CONTENDERS:
                of[name].append(run(name, shape))
        busy = [statistics.median(each.busy for each in of[name]) for name in CONTENDERS]
        cpu = [statistics.median(each.cpu for each in of[name]) / shape.gigabytes for name in CONTENDERS]
        rows.append(_compared(f"the model is busy: {shape.name}", "of wall time", round(busy[0], 4),
                              round(busy[1], 4), ">= 0.95, and no less than the operators",
                              busy[0] >= 0.95 and busy[0] >= busy[1]))  # fmt: skip
        rows.append(_compared(f"CPU time of the cluster: {shape.name}", "CPU s/GB", round(cpu[0], 2),
                              round(cpu[1], 2), "<= the operators", cpu[0] <= cpu[1]))  # fmt: skip
    of_kill = {name: run(name, SMALL, kill=True) for name in CONTENDERS}
    again = of_kill["stage"].repeated
    rows.append(Row("rows inferred again after kill -9 of the model, of 384", "rows", again, target="<= one item of 32",
                    met=again <= BATCHES * SMALL.rows, note=_about(of_kill)))  # fmt: skip
    of_row = {name: run(name, SMALL, killer=True) for name in CONTENDERS}
    lost = of_row["stage"].lost
    rows.append(Row("rows lost to one row that kills its worker, of 384", "rows", lost, target="1", met=lost == 1,
                    note=_about(of_row)))  # fmt: skip
    return rows


def _about(of: dict[str, Outcome]) -> str:
    """Describe what each contender did."""
    return "; ".join(f"{name}: {each.repeated} rows again, {each.lost} lost, {each.loads} loads, {each.seconds:.0f} s"
                     for name, each in of.items())  # fmt: skip


def main() -> None:
    """Start the cluster, run the bench and write its result."""
    import ray
    from ray.cluster_utils import Cluster

    given = parser(__doc__).parse_args()
    os.environ.setdefault("RAY_DATA_DISABLE_PROGRESS_BARS", "1")
    store = 1_000_000_000
    head = {"num_cpus": 4, "num_gpus": 0, "resources": {"feeders": 1}, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head | {"object_store_memory": store})
    cluster.add_node(num_cpus=4, num_gpus=1, object_store_memory=store)
    ray.init(address=cluster.address, log_to_driver=False)
    finish("ray_operators", measured(given.rounds), given)


if __name__ == "__main__":
    from infra.bench.ray_operators import main as as_imported  # workers import the job by its module's name

    as_imported()
