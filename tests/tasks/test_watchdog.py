"""A stage that finishes nothing for minutes is named with workers and items; what hangs is ended, and it goes on."""

from pathlib import Path

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.stage import JobStage
from tests.worlds.failing_jobs import HangsFor

ITEMS = [WorkItem("good", ("a", "b")), WorkItem("hung", ("c", "d"))]
HERE = Placement(workers=2, stall_minutes=0.1)


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_and_ended_and_its_item_is_done_again(tmp_path: Path):
    shown: list[str] = []
    with JobStage(HangsFor(str(tmp_path), 1), HERE, shown.append) as stage:
        found = list(stage.run(ITEMS, Output(f"{tmp_path}/", "run", 1)))
    assert sum(manifest.rows for manifests in found for manifest in manifests) == 4
    notes = [note for manifests in found for manifest in manifests for note in manifest.notes]
    assert len(notes) == 1 and "nothing was finished for 0.1 minutes: worker process " in notes[0]
    assert notes[0].endswith("had c")
    assert "these workers were ended" in shown[0] and shown[-1] == ""


@pytest.mark.slow
def test_a_stage_that_stalls_again_and_again_fails_with_the_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pairmill.tasks.run.stage.Watchdog", lambda minutes, show: Watchdog(minutes, 1, show))
    told = r"the stage stalled 1 times.* had c\. .*--stall-minutes"
    with JobStage(HangsFor(str(tmp_path), 9), HERE) as stage, pytest.raises(PairmillError, match=told):
        list(stage.run(ITEMS, Output(f"{tmp_path}/", "run", 1)))


def test_progress_and_idle_workers_are_no_stall(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr("pairmill.tasks.run.pool.watchdog.time.monotonic", lambda: now[0])
    watchdog, ended = Watchdog(10, 3), []
    idle = {"idle": ""}
    both = {"busy": "worker 1 had a", **idle}
    for rows in range(1, 5):
        now[0] += 599
        watchdog.saw(rows)
        watchdog.look(both, ended.append)
    now[0] += 601
    watchdog.look(idle, ended.append)
    watchdog.look(both, ended.append)
    assert ended == [] and watchdog.reports == []  # it has just got its work, after a long wait for a machine
    now[0] += 601
    watchdog.look(both, ended.append)
    assert ended == ["busy"] and watchdog.take() == (watchdog.reports[0],) and watchdog.take() == ()
    watchdog.saw(4)
    now[0] += 599
    watchdog.look(both, ended.append)
    assert ended == ["busy"]
