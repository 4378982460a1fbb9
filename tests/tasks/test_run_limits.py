"""A run stops at a commit when it has used up its hours, GPU-hours, rows or bytes, and the next goes on from there."""

import logging
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import BudgetSpent
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.flows.command.cli import main
from pairmill.flows.run import run_recipe
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.run.place.run_limits import Spending
from pairmill.tasks.run.pool.process import LOG
from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curate, curated_lake, rows
from tests.worlds.shared import opened_new

DONE = [Manifest("tags", "p", "s", "k", 10, 500_000_000, 1_800.0, "", 1, "run")]


@pytest.mark.parametrize(
    ("limits", "times"),
    [({"gpu_hours": 1.5}, 6), ({"rows": 25}, 3), ({"gigabytes": 2.0}, 4), ({"hours": 1e-12}, 1)],
)
def test_each_limit_stops_the_run_once_it_is_reached(limits: dict[str, float], times: int) -> None:
    spending, n = Spending(limits), 0
    with pytest.raises(BudgetSpent, match=r"stopped at a commit: this run may use .* 4 items of 'tag' were"):
        for _ in range(20):
            spending.add(DONE, 0.5)
            n += 1
            spending.check("tag", 4)
    assert n == times
    spending.check("tag", 0)  # nothing is left to do


def test_without_limits_a_run_goes_on() -> None:
    spending = Spending()
    spending.add(DONE * 1_000, 8.0)
    spending.check("tag", 4)


def test_a_limit_is_no_part_of_a_completed_runs_request() -> None:
    compute = Compute(max_rows=7, max_hours=2.0, wait_minutes=5.0)  # pyright: ignore[reportCallIssue]
    asked = [run_recipe.request_run(load_recipe("demo"), ["x"], each, []).digest for each in (compute, Compute())]  # pyright: ignore[reportCallIssue]
    assert asked[0] == asked[1]


def test_a_stopped_run_is_recorded_and_says_how_to_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = [f"--set={key}={value}" for key, value in small_settings().items()]
    command = ["run", "demo", "--source", str(pages()), "--lake", str(tmp_path / "lake"), *settings]
    assert main([*command, "--max-rows", "60"]) == 1
    assert re.search(r"may use 60 rows, and has used \d+; \d items of 'ingest' were", capsys.readouterr().err)
    assert rows(tmp_path / "lake", "SELECT state FROM runs") == [("stopped",)]
    assert 0 < rows(tmp_path / "lake", "SELECT count(*) FROM documents")[0][0] < 18


@pytest.mark.slow  # 12 s: a whole run
def test_runs_that_are_stopped_again_and_again_end_in_the_same_dataset(tmp_path: Path) -> None:
    settings = [f"--set={key}={value}" for key, value in small_settings().items()]
    command = ["run", "demo", "--source", str(pages()), "--lake", str(tmp_path / "lake"), *settings]
    assert [main([*command, "--max-rows", n]) for n in ("300", "1500")] == [1, 1]
    published, _ = curate(tmp_path / "lake", pages(), settings=small_settings())
    same = rows(curated_lake(), "SELECT content_digest FROM datasets")
    assert [(published.content_digest,)] == same


class Released(logging.Handler):
    """Sets an event when a run says that it waits for the lease."""

    def __init__(self) -> None:
        super().__init__()
        self.event, self.text = threading.Event(), ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text = record.getMessage()
        self.event.set()


@pytest.fixture
def waits() -> Iterator[Released]:
    handler = Released()
    LOG.addHandler(handler)
    yield handler
    LOG.removeHandler(handler)


@pytest.mark.slow
def test_a_run_waits_for_another_as_long_as_it_may_and_is_then_refused_by_name(
    tmp_path: Path, waits: Released, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "demo", "--allow-empty", "--retry", "timeout", "--lake", str(tmp_path / "lake"), "--wait"]

    def hold(lake: Lake) -> None:
        with lease.writing(lake, "run-1", "curate 30m"):
            held.set()
            assert waits.event.wait(60) and "waiting up to 10 minutes" in waits.text

    held = threading.Event()
    with opened_new(tmp_path / "lake") as lake, ThreadPoolExecutor(1) as thread:
        with lease.writing(lake, "run-1", "curate 30m"):
            assert main([*command, "0.01"]) == 1
            assert "is being written by" in (told := capsys.readouterr().err) and "run run-1, 'curate 30m'" in told
        waits.event.clear()
        holding = thread.submit(hold, lake)
        assert held.wait(60)
        assert main([*command, "10"]) == 0
        holding.result()
    states = rows(tmp_path / "lake", "SELECT flow, state FROM runs")
    assert states == [("curate", "completed")]
