"""A table is read in parts, and what it says counts once, however it is cut into parts from one day to the next."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.ops.read.records import tables
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.run.session import Session
from tests.worlds.samples import table_bytes
from tests.worlds.superseding import alive, ingested, newest
from tests.worlds.web import photograph

IDS = {
    "documents": "document_id",
    "images": "image_id",
    "sentences": "sentence_id",
    "links": "concat(document_id, '-', position)",
}
LINE = 100


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON lines are cut at every five of the lines below, instead of at 64 MB."""
    monkeypatch.setattr(tables, "RANGE_BYTES", 5 * LINE)


def put(place: Path, name: str, data: bytes, at: int) -> None:
    """A file of the source; ``at`` is its time, which its etag shows."""
    file = place / "pages" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (at, at))


def lines(place: Path, words: Sequence[str], at: int) -> None:
    """A list of addresses, a line for each of its captions."""
    rows = [{"url": f"https://x.example/{word}.jpg", "caption": said(word)} for word in words]
    put(place, "list.jsonl", b"".join(json.dumps(row).encode().ljust(LINE - 1) + b"\n" for row in rows), at)


def table(place: Path, words: Sequence[str], group: int, at: int) -> None:
    """Pictures with their captions, ``group`` of them in a row group; as many pictures as a row's place tells."""
    held = pa.array([{"bytes": photograph(n), "path": f"{n}.jpg"} for n in range(len(words))])
    columns = {"image": held, "caption": pa.array([said(word) for word in words])}
    put(place, "table.parquet", table_bytes(columns, group), at)


def said(word: str) -> str:
    return f"The caption of {word} in words."


def words(n: int, **others: str) -> list[str]:
    return [others.get(f"row{each}", f"row{each}") for each in range(n)]


def counted(held: Session) -> list[str]:
    """The captions that count, after a look that nothing of any document is there twice."""
    for name, key in IDS.items():
        twice = held.lake.query(f"SELECT {key} FROM {name} GROUP BY 1 HAVING count(*) > 1")
        assert twice == [], f"{name}: {len(twice)} ids stand in more than one row"
    return sorted(alive(held)[0])


def expected(*rows: Sequence[str]) -> list[str]:
    return sorted(said(word) for each in rows for word in each)


@pytest.mark.slow
@pytest.mark.parametrize(
    "n",
    [
        pytest.param(4, id="past one range", marks=pytest.mark.full),
        pytest.param(7, id="inside its last range"),
        pytest.param(10, id="by a range", marks=pytest.mark.full),
    ],
)
def test_json_lines_that_grew_say_everything_once(n: int, tmp_path: Path):
    lines(tmp_path, words(n), at=1)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(n))
        before = newest(held)
    lines(tmp_path, words(n + 4), at=2)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(n + 4))
        assert sorted(alive(held, before)[0]) == expected(words(n))
        assert not any("no longer holds" in note for note in held.notes)
        before = newest(held)
    with ingested(tmp_path) as held:
        assert (held.counts["ingest"], newest(held)) == (0, before)


@pytest.mark.slow
def test_json_lines_that_shrank_say_only_what_they_say_now(tmp_path: Path):
    for at, n in enumerate((12, 3, 8)):
        lines(tmp_path, words(n), at)
        with ingested(tmp_path) as held:
            assert counted(held) == expected(words(n))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (3, 2),
        pytest.param(1, 6, marks=pytest.mark.slow),
        pytest.param(2, 3, marks=pytest.mark.full),
        pytest.param(6, 1, marks=pytest.mark.full),
    ],
)
def test_a_table_in_other_row_groups_says_the_same(before: int, now: int, tmp_path: Path):
    table(tmp_path, words(6), before, at=1)
    with ingested(tmp_path) as held:
        was = alive(held)
        assert counted(held) == expected(words(6))
    table(tmp_path, words(6), now, at=2)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(6))
        assert alive(held) == was
        assert held.lake.query("SELECT count(*) FROM superseded") == [(0,)]
        assert not any("no longer holds" in note for note in held.notes)


@pytest.mark.parametrize(
    ("before", "now"), [pytest.param(2, 3, marks=pytest.mark.slow), pytest.param(3, 2, marks=pytest.mark.full)]
)
def test_what_a_row_said_before_its_table_was_written_anew_no_longer_counts(before: int, now: int, tmp_path: Path):
    table(tmp_path, words(6), before, at=1)
    with ingested(tmp_path) as held:
        first = newest(held)
    table(tmp_path, words(5, row4="row4 of late"), now, at=2)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(5, row4="row4 of late"))
        assert sorted(alive(held, first)[0]) == expected(words(6))


@pytest.mark.slow
def test_a_table_that_goes_back_to_what_it_was_is_read_again(tmp_path: Path):
    for group in (2, 3):
        table(tmp_path, words(6), group, at=group)
        with ingested(tmp_path) as held:
            assert counted(held) == expected(words(6))
    table(tmp_path, words(2), 2, at=4)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(2))
    table(tmp_path, words(6), 2, at=2)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(6))


@pytest.mark.slow
def test_a_part_that_is_tried_again_leaves_what_moved_into_other_parts(tmp_path: Path):
    """The rows of a table that moved are the ones that were read first; they belong to where they are said now."""
    for at, group in ((1, 3), (2, 2)):
        table(tmp_path, words(6), group, at)
        with ingested(tmp_path) as held:
            was = alive(held)
    with ingested(tmp_path) as held:
        for group in range(3):
            complain(held, f"{tmp_path}/pages/table.parquet#row-group={group}")
            assert retry_quarantined(held, "bad_record") == 1
            assert counted(held) == expected(words(6))
            assert alive(held) == was
            assert held.lake.query("SELECT count(*) FROM quarantine") == [(0,)]


def complain(held: Session, unit: str) -> None:
    held.lake.execute(
        "INSERT INTO quarantine BY NAME SELECT ? AS item, 'ingest' AS stage, 'bad_record' AS reason, ? AS payload_ref, "
        "source, commit FROM inputs WHERE uri = ? ORDER BY commit DESC LIMIT 1",
        (f"{unit}-row", unit, unit),
    )


def kill(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read what is new, and die before it is compared with what was there."""

    class Killed(Exception):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("pairmill.catalog.pending.contents.superseded.supersede", die)
        with ingested(place):
            raise AssertionError("was to be killed")


@pytest.mark.slow
def test_a_run_killed_before_the_comparison_leaves_it_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines(tmp_path, words(4), at=1)
    table(tmp_path, words(6), 3, at=1)
    with ingested(tmp_path):
        pass
    lines(tmp_path, words(8), at=2)
    table(tmp_path, words(6, row5="row5 of late"), 2, at=2)
    kill(tmp_path, monkeypatch)
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 0
        assert counted(held) == sorted({*expected(words(8)), *expected(words(6, row5="row5 of late"))})


@pytest.mark.slow
def test_what_was_said_again_only_while_a_run_was_killed_stays_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of the rows that come and go, the first stands in a part that was lost, and the other in one that was killed."""
    for at, n in ((1, 6), (2, 4)):
        table(tmp_path, words(n), 2, at)
        with ingested(tmp_path) as held:
            assert counted(held) == expected(words(n))
    table(tmp_path, words(6), 3, at=3)
    kill(tmp_path, monkeypatch)
    table(tmp_path, words(4), 3, at=4)
    with ingested(tmp_path) as held:
        assert counted(held) == expected(words(4))


@pytest.mark.slow
def test_a_table_that_cannot_be_read_for_a_while_is_told_and_keeps_its_rows(tmp_path: Path):
    table(tmp_path, words(6), 2, at=1)
    lines(tmp_path, words(4), at=1)
    with ingested(tmp_path) as held:
        was = alive(held)
    put(tmp_path, "table.parquet", b"PAR1 cut off", at=2)
    with ingested(tmp_path) as held:
        assert alive(held) == was
        assert any("no longer holds 3 units" in note for note in held.notes)
        assert held.lake.query("SELECT reason FROM quarantine") == [("bad_record",)]
    table(tmp_path, words(6), 3, at=3)
    with ingested(tmp_path) as held:
        assert alive(held) == was
        assert held.lake.query("SELECT reason FROM quarantine") == []
