"""Jobs with a bug, jobs that sleep, hang, or kill their process, for the pool and for Ray."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.stage import JobStage


@dataclass(frozen=True)
class FailsOn:
    """A job with a bug in one shard."""

    shard: str

    def __call__(self, item: WorkItem) -> list[Part]:
        if item.shard == self.shard:
            raise ZeroDivisionError("a bug")
        return [
            Part("image_embedding", pa.table({"sha256": list(item.keys), "image_vector": [b""] * len(item.keys)}), "s")
        ]


@dataclass(frozen=True)
class OfModel(FailsOn):
    """A job that runs a model."""

    model: str = "clip"


@dataclass(frozen=True)
class Slow(FailsOn):
    """A job that sleeps."""

    seconds: float = 1.0

    def __call__(self, item: WorkItem) -> list[Part]:
        time.sleep(self.seconds)
        return super().__call__(item)


@dataclass(frozen=True)
class HangsFor:
    """A job whose key 'c' hangs in its first ``times`` tries, as behind a lock that nobody releases."""

    folder: str
    times: int

    def __call__(self, item: WorkItem) -> list[Part]:
        for key in item.keys:
            row_reports.begin(key, 3_600)
            if key == "c" and len(list(Path(self.folder).glob("try-*"))) < self.times:
                Path(self.folder, f"try-{time.monotonic_ns()}").touch()
                time.sleep(3_600)
        table = pa.table({"sha256": list(item.keys), "image_vector": [b""] * len(item.keys)})
        return [Part("image_embedding", table, "s")]

    def poisoned(self, item: WorkItem) -> list[Part]:
        return [Part("image_embedding", pa.table({"sha256": list(item.keys), "image_vector": [None]}), "s")]


@dataclass(frozen=True)
class DiesOn:
    """A job in which one key is what a native crash is."""

    key: str

    def __call__(self, item: WorkItem) -> list[Part]:
        if self.key in item.keys:
            os.kill(os.getpid(), signal.SIGKILL)
        table = pa.table({"sha256": list(item.keys), "image_vector": [b""] * len(item.keys)})
        return [Part("image_embedding", table, "s")]

    def poisoned(self, item: WorkItem) -> list[Part]:
        return [
            Part("image_embedding", pa.table({"sha256": [self.key], "image_vector": pa.nulls(1, pa.binary())}), "s")
        ]


def assert_one_is_poison_of_64(where: Placement, tmp_path: Path) -> None:
    """Run 64 keys, one of which kills its worker: 63 have rows, and one is in quarantine."""
    keys = tuple(f"{n:03}" for n in range(64))
    items = [WorkItem("good", ("a", "b")), WorkItem("bad", keys), WorkItem("last", ("c",))]
    with JobStage(DiesOn("041"), where) as stage:
        results = list(stage.run(items, Output(f"{tmp_path}/", "run", 1)))
    assert sorted(manifests[0].shard for manifests in results) == ["bad", "good", "last"]
    manifests = next(each for each in results if each[0].shard == "bad")
    rows = [(each.table, row) for each in manifests for row in pq.read_table(each.path, partitioning=None).to_pylist()]
    good = [row["sha256"] for table, row in rows if table == "image_embedding" and row["image_vector"] is not None]
    assert sorted(good) == [key for key in keys if key != "041"]
    (told,) = [row for table, row in rows if table == "quarantine"]
    assert (told["item"], told["reason"], told["stage"], told["shard"]) == ("041", "poison", "DiesOn", "bad")
    # What the job itself says of a killer, so that it is not tried at the next run.
    assert [row["sha256"] for _, row in rows if row.get("image_vector", b"") is None] == ["041"]
    assert len({each.partition_id for each in manifests}) == len(manifests)
