"""The record of runs: how each ended, also those that could not say so."""

import os
import signal
import threading

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.quarantine import quarantined_share
from pairmill.catalog.terms.error import BudgetSpent, NotApproved
from pairmill.catalog.write import runs
from pairmill.flows.run.settings import load_recipe


class Stopped(BaseException):
    """As Prefect's TerminationSignal, which is no Exception either."""


def interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def states(lake: Lake) -> list[tuple]:
    return lake.query("SELECT run_id, state, detail, finished_at IS NOT NULL FROM runs ORDER BY started_at")


@pytest.mark.parametrize(
    ("error", "state", "detail"),
    [
        (ValueError("no"), "failed", "ValueError: no"),
        (SystemExit(1), "failed", "SystemExit: 1"),
        (KeyboardInterrupt(), "cancelled", "KeyboardInterrupt"),
        (BudgetSpent("no more"), "stopped", "BudgetSpent: no more"),
        (NotApproved("no"), "cancelled", "NotApproved: no"),
        (Stopped(), "cancelled", "Stopped"),
    ],
)
def test_a_run_records_how_it_ended(lake: Lake, error: BaseException, state: str, detail: str) -> None:
    with pytest.raises(type(error)), runs.record_run(lake, "run", "curate", load_recipe("demo"), []):
        raise error
    assert states(lake) == [("run", state, detail, True)]


def test_a_signal_during_a_query_is_recorded_as_such(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt), runs.record_run(lake, "run", "curate", load_recipe("demo"), []):
            threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGUSR1)).start()
            lake.query("SELECT count(*) FROM range(500_000_000) WHERE range % 7 = 3")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert states(lake) == [("run", "cancelled", "KeyboardInterrupt", True)]


def test_the_next_run_finds_one_that_was_killed(lake: Lake) -> None:
    lake.execute("INSERT INTO runs VALUES ('old', 'curate', 'demo', 'running', now(), NULL, '')")
    with runs.record_run(lake, "new", "curate", load_recipe("demo"), []):
        assert [row[:2] for row in states(lake)] == [("old", "killed"), ("new", "running")]
    assert states(lake)[0] == ("old", "killed", "found by run new: it is gone", False)


def test_the_share_in_quarantine_is_of_what_the_run_read(lake: Lake) -> None:
    assert quarantined_share(lake, "run") == 0.0
    lake.execute("INSERT INTO commits VALUES (1, 'before', 'ingest', now()), (2, 'run', 'ingest', now())")
    for commit, n in ((1, 50), (2, 6)):
        images = f"SELECT range::VARCHAR AS image_id, {commit} AS commit FROM range({n})"
        lake.execute(f"INSERT INTO images BY NAME {images}")
    for item in ("a", "b", "b"):
        lake.execute(f"INSERT INTO quarantine BY NAME SELECT '{item}' AS item, 'run' AS run_id")
    assert quarantined_share(lake, "run") == 2 / 8
