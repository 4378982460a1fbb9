"""What a run says of its steps is true: a step that is said to be done is not done again."""

import io
import time
from pathlib import Path

import pytest
from rich.console import Console

from pairmill.catalog.pending.item import WorkItem, join
from pairmill.catalog.write.commit import Manifest
from pairmill.flows.command.display import Display
from pairmill.flows.run.progress_text import progress_text
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.place.progress import Progress, RowCount
from tests.worlds.shared import new_lake


def test_a_step_is_said_to_be_done_when_it_is_committed(tmp_path: Path):
    source = tmp_path / "source"
    source.mkdir()
    for n in range(40):
        (source / f"{n}.html").write_text(f"<p>Page number {n} has a sentence.</p>")
    seen: list[tuple[Progress, int]] = []
    compute = Compute.model_validate({"workers": 2})
    with session(load_recipe("demo", {}), [str(source)], str(new_lake(tmp_path / "lake")), compute) as held:

        def progress(at: Progress) -> None:
            seen.append((at, held.lake.query("SELECT count(*) FROM documents")[0][0]))

        held.progress = progress
        ingest(held)
    last, documents = seen[-1]
    assert (last.is_end, last.done, last.total, last.unit, documents) == (True, 40, 40, "files", 40)
    assert [at.items for at, _ in seen] == list(range(last.of_items + 1))
    rows = [at.done for at, _ in seen]
    assert rows[0] == 0 and rows == sorted(set(rows)) and {at.total for at, _ in seen} == {40}


def manifest(table: str, shard: str) -> Manifest:
    return Manifest(table, shard, shard, "", 1, 0, 0.0, "", 1, "run")


def test_rows_are_counted_by_shard_whatever_tables_an_item_fills():
    a, b, c = (WorkItem(name, tuple(name * n), inputs={}) for name, n in (("a", 1), ("b", 20), ("c", 300)))
    count = RowCount([a, join([b, c])])
    assert count.total == 321
    assert count.add([manifest("captions", "b"), manifest("quarantine", "c")]) == 320
    assert count.add([manifest("captions", "a"), manifest("usage", "a")]) == 321
    assert count.add([manifest("captions", "a")]) == 321
    assert count.end("caption", "pictures") == Progress("caption", 321, 321, "pictures", 2, 2, quarantined=1)


def test_rows_of_unfinished_items_are_shown_and_never_taken_back():
    count = RowCount([WorkItem(name, ("1", "2", "3"), inputs={}) for name in "ab"])
    assert [count.advance(ahead) for ahead in (0, 2, 2, 9)] == [False, True, False, True]
    count.add([manifest("captions", "a")])
    assert not count.advance() and (count.shown, count.done) == (6, 3)


def test_what_went_to_the_quarantine_stands_beside_the_rows():
    assert progress_text(Progress("a", 600, 1200, quarantined=3), 30.0).startswith("600 of 1,200 pictures, 3 in q")
    assert progress_text(Progress("a", 9, 9, quarantined=1), 30.0) == "9 pictures, 1 in quarantine"


@pytest.mark.parametrize(
    ("done", "seconds", "text"),
    [
        (0, 0.0, "0 of 1,200 pictures"),
        (0, 300.0, "0 of 1,200 pictures, starting workers, 5 min so far"),
        (600, 0.0, "600 of 1,200 pictures"),
        (600, 30.0, "600 of 1,200 pictures, 20/s, 30 s left"),
        (3, 30.0, "3 of 1,200 pictures, 10 s each, 3 h 20 min left"),
        (1200, 30.0, "1,200 pictures"),
    ],
)
def test_progress_is_told_in_rows_with_the_rate_and_the_time_left(done: int, seconds: float, text: str):
    assert progress_text(Progress("captions", done, 1200), seconds) == text


def test_one_is_told_in_the_singular():
    told = [progress_text(Progress("a", 1, 1, unit), 1.0) for unit in ("pictures", "addresses", "cluster ranges")]
    assert told == ["1 picture", "1 address", "1 cluster range"]


def test_a_log_gets_a_line_at_a_steps_end_and_one_when_nothing_was_told_for_long(monkeypatch: pytest.MonkeyPatch):
    out = io.StringIO()
    monkeypatch.setattr(Display, "EVERY_SECONDS", 0.02)
    with Display(Console(file=out)) as display:
        display.progress(Progress("captions", 0, 9, of_items=3))
        display.progress(Progress("captions", 3, 9, items=1, of_items=3))
        while "captions: 3 of 9 pictures\n" not in out.getvalue():  # its time is that of the start, too
            time.sleep(0.01)
        display.progress(Progress("captions", 6, 9, items=2, of_items=3))
        while "captions: 6 of 9 pictures, " not in out.getvalue():
            time.sleep(0.01)
        display.progress(Progress("captions", 9, 9, items=3, of_items=3))
        while "at work: 0 s so far" not in out.getvalue():
            time.sleep(0.01)
    assert "captions: 9 pictures, 0." in out.getvalue()
