"""The pool of processes: a death costs what that process held, and one that is stuck is ended."""

import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.pool.pool import PoolShape, apart, run_in_pool, stream_in_process
from pairmill.tasks.run.pool.worker import JobWorker


@dataclass(frozen=True)
class Notes:
    """A job that notes each try of an item in ``folder``; a key 'dies' kills its worker, a key 'hangs' never ends."""

    folder: str

    def __call__(self, item: WorkItem) -> list[Part]:
        with open(f"{self.folder}/{item.shard}", "a") as file:
            file.write(".")
        for key in item.keys:
            row_reports.begin(key, 0.5 if key == "hangs" else 60.0)
            if key == "dies":
                time.sleep(0.3)  # the other worker takes an item meanwhile
                os.kill(os.getpid(), signal.SIGKILL)
            if key == "hangs":
                time.sleep(3600)
        row_reports.begin("", 60)
        return [
            Part("image_embedding", pa.table({"sha256": list(item.keys), "image_vector": [b""] * len(item.keys)}), "s")
        ]


def tries(folder: Path) -> dict[str, int]:
    return {path.name: len(path.read_text()) for path in folder.iterdir()}


def rows(results: list[list[Manifest]], table: str) -> list[dict]:
    paths = [each.path for manifests in results for each in manifests if each.table == table]
    return [row for path in paths for row in pq.read_table(path, partitioning=None).to_pylist()]


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


def test_a_death_sends_back_what_that_process_held_and_nothing_else(notes: Path, tmp_path: Path):
    items = [WorkItem("bad", ("a", "dies", "b")), *(WorkItem(f"good-{n}", ("a", "b")) for n in range(8))]
    results = list(run_in_pool(items, JobWorker(Notes(str(notes))), Output(f"{tmp_path}/", "run", 1), PoolShape(2)))
    assert {name: n for name, n in tries(notes).items() if n > 1}.keys() == {"bad"}
    assert len(rows(results, "image_embedding")) == 18
    assert [(row["item"], row["reason"]) for row in rows(results, "quarantine")] == [("dies", "poison")]


@pytest.mark.slow
def test_a_row_that_never_ends_is_ended_tried_once_more_alone_and_quarantined(notes: Path, tmp_path: Path):
    items = [WorkItem("stuck", ("a", "hangs", "b", "c")), WorkItem("good", ("a",))]
    results = list(run_in_pool(items, JobWorker(Notes(str(notes))), Output(f"{tmp_path}/", "run", 1), PoolShape(2)))
    told = rows(results, "quarantine")
    assert [(row["item"], row["reason"], row["stage"]) for row in told] == [("hangs", "timeout", "Notes")]
    assert sorted(row["sha256"] for row in rows(results, "image_embedding")) == ["a", "a", "b", "c"]
    assert tries(notes) == {"stuck": 3, "good": 1}  # as a whole, the row alone, the others


def test_work_that_is_given_up_leaves_a_pool_that_works(notes: Path, tmp_path: Path):
    items = [WorkItem(f"{n}", ("a",)) for n in range(20)]
    given_up = run_in_pool(items, JobWorker(Notes(str(notes))), Output(f"{tmp_path}/", "run", 1), PoolShape(2))
    next(given_up)
    given_up.close()  # type: ignore[attr-defined]
    assert (
        len(list(run_in_pool(items[:3], JobWorker(Notes(str(notes))), Output(f"{tmp_path}/", "run2", 1), PoolShape(2))))
        == 3
    )
    assert len(tries(notes)) < 20


def counting(n: int) -> Iterator[int]:
    """Yield 0 to n - 1, and die before 7."""
    for each in range(n):
        if each == 7:
            os.kill(os.getpid(), signal.SIGKILL)
        yield each


def test_what_runs_apart_takes_nobody_with_it_and_is_started_again():
    assert list(stream_in_process(counting, 3)) == [0, 1, 2]
    with pytest.raises(PairmillError, match="died"):
        list(stream_in_process(counting, 9))
    assert list(stream_in_process(counting, 5)) == [0, 1, 2, 3, 4]
    os.kill(apart().pid, signal.SIGKILL)  # while it has no work; whoever asks next does not see it
    assert list(stream_in_process(counting, 4)) == [0, 1, 2, 3]
    assert next(stream_in_process(counting, 6)) == 0  # given up after its first piece
    assert list(stream_in_process(counting, 2)) == [0, 1]
