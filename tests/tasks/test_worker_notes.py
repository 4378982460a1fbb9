"""What a worker has to tell reaches the run: its log, its notes, and `pairmill status` while it runs."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.write import lease, runs
from pairmill.flows.command.cli import main
from pairmill.flows.run.settings import load_recipe
from pairmill.tasks.run.place.identity import with_scorers
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.pool.worker import import_fault
from pairmill.tasks.run.session import Session
from tests.worlds.placements import FED
from tests.worlds.shared import opened_new
from tests.worlds.sleeping_model import Sleeps

TOLD = "the model works slower: it says so"


@pytest.mark.parametrize("where", [FED, Placement(workers=2)], ids=["with feeders", "one by one"])
def test_a_note_of_a_worker_is_in_status_during_the_run_and_at_its_end_once(
    where: Placement, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    recipe = load_recipe("demo")
    work = [WorkItem(f"shard-{n}", (f"{n}-tells", f"{n}-too")) for n in range(3)]
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "curate demo") as writer:
        with pytest.raises(ValueError), runs.record_run(lake, "run", "curate", recipe, []):
            session = Session(writer, with_scorers(compile_plan(recipe))[0], where)
            with caplog.at_level(logging.WARNING, "pairmill.workers"):
                session.work("sleep", work, Sleeps(str(tmp_path)))
            assert session.notes == [TOLD] and session.lasting_notes == ()
            assert caplog.messages == [TOLD]
            main(("status", "--lake", str(tmp_path / "lake")))
            assert [line for line in capsys.readouterr().out.splitlines() if TOLD in line] == [f"note     {TOLD}"]
            raise ValueError("and then\nit failed")
        (run,) = runs.latest(lake, 1)
        assert (run.state, run.error, run.notes) == ("failed", "ValueError: and then", [TOLD])
        assert [each.notes for each in runs.runs_with_notes(lake, datetime.now(UTC))] == [[TOLD]]


def test_a_library_that_fails_while_it_is_imported_is_one_line_and_a_users_module_keeps_its_traceback():
    code = compile("raise RuntimeError('operator nms is missing')", "module.py", "exec")
    faults = []
    for name in ("torchvision.ops", "my_scores"):
        try:
            exec(code, {"__name__": name})
        except RuntimeError as error:
            faults.append(import_fault(error))
    assert str(faults[0]).startswith(
        "torchvision cannot be imported (RuntimeError: operator nms is missing). `pairmill "
    )
    assert faults[1] is None
