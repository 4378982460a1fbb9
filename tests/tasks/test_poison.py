"""A row that kills its worker is found and quarantined, and its neighbours are worked on."""

import os
import pickle
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.pool import poison
from pairmill.tasks.run.pool.poison import LostWorker
from pairmill.tasks.run.pool.pool import run_item
from pairmill.tasks.run.pool.process import Process
from pairmill.tasks.run.pool.worker import JobWorker
from tests.worlds.failing_jobs import DiesOn, assert_one_is_poison_of_64

DIED = LostWorker("poison", "a worker process that ran it alone died")


def test_a_key_of_64_that_kills_its_worker_leaves_63_good_rows_and_one_poison_row(tmp_path: Path):
    assert_one_is_poison_of_64(Placement(workers=1), tmp_path)  # a new process a death: some 1.5 s each


@given(n=st.integers(2, 200), data=st.data())
def test_exactly_the_killers_are_found_whatever_their_places(n: int, data: st.DataObject):
    keys = tuple(str(key) for key in range(n))
    killers = data.draw(st.sets(st.sampled_from(keys), max_size=min(n - 1, poison.MAX_KILLERS)))
    item = WorkItem("s", keys, inputs={"numbers": list(range(n))})
    deaths = 0

    def attempt(part: WorkItem, rows: int) -> tuple[str, ...] | LostWorker:
        nonlocal deaths
        assert [str(number) for number in part.inputs["numbers"]] == list(part.keys)
        died = bool(killers & set(part.keys))
        deaths += died
        return DIED if died else part.keys

    results, found = poison.isolate(item, attempt)
    assert set(found) == killers
    assert sorted(key for part in results for key in part) == sorted(set(keys) - killers)
    assert deaths <= len(killers) * (n.bit_length() + 2)


def test_a_row_that_dies_once_only_is_no_killer():
    answers = iter([DIED, DIED, "one", "two"])
    found = poison.isolate(WorkItem("s", ("a", "b")), lambda part, rows: next(answers))
    assert found == (["one", "two"], {})


@given(n=st.integers(1, 60), data=st.data())
def test_each_damaged_row_costs_one_death_however_many_there_are(n: int, data: st.DataObject):
    keys = tuple(str(key) for key in range(n))
    damaged = data.draw(st.sets(st.sampled_from(keys), max_size=n if n <= poison.MAX_KILLERS else n - 1))
    deaths = 0

    def attempt(part: WorkItem, rows: int) -> tuple[str, ...] | LostWorker:
        nonlocal deaths
        if not (bad := [key for key in part.keys if key in damaged]):
            return part.keys
        deaths += 1
        return LostWorker("damaged", "", (bad[0],), "SIGABRT")

    results, found = poison.isolate(WorkItem("s", keys), attempt)
    assert set(found) == damaged
    assert sorted(key for part in results for key in part) == sorted(set(keys) - damaged)
    assert deaths == len(damaged)


@pytest.mark.parametrize(
    "item",
    [
        WorkItem("s", tuple(str(n) for n in range(100))),
        WorkItem("s", ("a", "b")),
        WorkItem("s", ("upto",), inputs={"range": (1, 9)}),
    ],
)
def test_when_everything_dies_or_work_is_not_by_rows_nothing_is_called_poison(item: WorkItem):
    with pytest.raises(PairmillError):
        poison.isolate(item, lambda part, rows: DIED)


@dataclass(frozen=True)
class CrashesOn:
    """A job that reads units of a source, and aborts its process on one key, as a native library may."""

    key: str
    tries: str
    reads_sources: ClassVar[bool] = True

    def __call__(self, item: WorkItem) -> list[Part]:
        for key in item.keys:
            row_reports.begin(key, 60)
            with open(self.tries, "a") as file:
                file.write(key)
            if key == self.key:
                os.write(2, b"terminate called after throwing an instance of what no user knows")
                os.abort()
        print("what Python says", file=sys.stderr)
        table = pa.table({"sha256": list(item.keys), "image_vector": [b""] * len(item.keys)})
        return [Part("image_embedding", table, "s")]


def test_a_unit_that_crashes_a_library_costs_one_death_and_one_row_and_no_line_of_the_library(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    worker = JobWorker(CrashesOn("b", str(tmp_path / "tries")))
    process = Process({}, is_forked=False)
    item = WorkItem("s", ("a", "b", "c"))
    manifests = run_item(process, worker, pickle.dumps(worker), item, Output(f"{tmp_path}/", "run", 1))
    process.close()
    (told,) = [row for each in manifests if each.table == "quarantine" for row in _rows(each)]
    assert (told["item"], told["reason"]) == ("b", "damaged")
    assert "SIGABRT" in told["detail"]
    assert (tmp_path / "tries").read_text() == "abac"
    assert capfd.readouterr().err == "what Python says\n"


def _rows(manifest: Manifest) -> list[dict]:
    return pq.read_table(manifest.path, partitioning=None).to_pylist()


WORKERS = r"fewer workers \(--workers, or compute.workers in Prefect\)\.$"
REPLICAS = r"fewer replicas of its model \(--model clip:replicas=1, or compute.models in Prefect\)"


@dataclass(frozen=True)
class RunsModel(DiesOn):
    """Such a job that runs a model."""

    model: str


@pytest.mark.parametrize(
    ("job", "remedy"), [(DiesOn("a"), f"use {WORKERS}"), (RunsModel("a", "clip"), f"use {REPLICAS} or {WORKERS}")]
)
def test_when_everything_dies_a_user_of_the_command_line_and_one_of_prefect_are_told_what_to_change(
    job: DiesOn, remedy: str, tmp_path: Path
):
    with pytest.raises(PairmillError, match=remedy):
        poison.quarantine_killers(
            WorkItem("s", ("a", "b")), job, Output(f"{tmp_path}/", "run", 1), lambda part, rows: DIED
        )
