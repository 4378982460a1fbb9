"""A repair takes nothing out of a lake that only that file has, and what it takes out stays on disk for some days."""

from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.write import lease
from pairmill.catalog.write.sweep import SNAPSHOT_SECONDS, sweep
from pairmill.flows.command.cli import main
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from tests.worlds.line import rows
from tests.worlds.published import published


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    published(tmp_path / "lake", pictures=6, cap=6, image_rules=())
    return tmp_path / "lake"


def first_file(lake: Path, table: str) -> Path:
    with create_or_open(lake, read_only=True) as opened:
        return Path(opened.data_path + snapshot.files(opened.unchecked, (table,))[0].data_file)


def swept(lake: Path, snapshot_seconds: float) -> None:
    with create_or_open(lake) as opened, lease.writing(opened, "sweep", "test") as writer:
        sweep(writer, 0, snapshot_seconds)


@pytest.mark.slow
def test_a_file_that_is_registered_twice_is_still_there_after_the_repair_and_a_sweep(lake: Path) -> None:
    before, file = rows(lake, "SELECT * FROM payloads ORDER BY ALL"), first_file(lake, "payloads")
    with create_or_open(lake) as opened:
        opened.execute("CALL ducklake_add_data_files('lake', 'payloads', ?)", (str(file),))
    assert len(rows(lake, "SELECT 1 FROM payloads")) > len(before)
    assert main(["check", "--repair", "--lake", str(lake)]) == 0
    swept(lake, 0)
    assert file.exists() and rows(lake, "SELECT * FROM payloads ORDER BY ALL") == before


@pytest.mark.slow
def test_a_file_without_a_record_stays_if_no_other_has_its_rows(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, file = rows(lake, "SELECT * FROM payloads ORDER BY ALL"), first_file(lake, "payloads")
    with create_or_open(lake) as opened:
        opened.execute("DELETE FROM partitions WHERE ends_with(path, ?)", (file.name,))
    assert main(["check", "--repair", "--lake", str(lake)]) == 3
    assert "2 rows that no other file has would be lost" in capsys.readouterr().out
    assert rows(lake, "SELECT * FROM payloads ORDER BY ALL") == before
    assert main(["check", "--repair", "--lose-rows", "--lake", str(lake)]) == 0
    assert len(rows(lake, "SELECT 1 FROM payloads")) == len(before) - 2


@pytest.mark.slow
def test_what_a_repair_took_out_stays_on_disk_for_days_also_in_a_lake_of_long_ago(lake: Path) -> None:
    file = first_file(lake, "image_quality")
    file.write_bytes(file.read_bytes()[:-9])
    with create_or_open(lake) as opened:
        opened.metadata.write("UPDATE ducklake_snapshot SET snapshot_time = now() - INTERVAL 90 DAY")
    assert main(["check", "--repair", "--lake", str(lake)]) == 0
    swept(lake, SNAPSHOT_SECONDS)
    assert file.exists()
    swept(lake, 0)
    assert not file.exists()


def read_again(lake: Path) -> None:
    """Let a page be read again whose rows an earlier reading has: of them, as `supersede` does, none is left."""
    with create_or_open(lake) as opened, lease.writing(opened, "again", "test") as writer:
        output = Output(opened.data_path, "again", writer.begin("ingest"))
        documents = opened.table('SELECT * EXCLUDE (shard, "commit") FROM documents LIMIT 1')
        reading = {"uri": ["page"], "size": [1], "etag": ["e"], "source": ["s"], "retries": [0], "reader": ["html 1"]}
        parts = [Part("documents", documents, ""), Part("inputs", pa.table(reading), "")]
        writer.commit(write_parts(parts, WorkItem("shard-9", ("page",)), output))
        opened.execute('DELETE FROM documents WHERE "commit" = ?', (output.commit,))
        opened.execute("INSERT INTO rereads (unit, commit) VALUES ('page', ?)", (output.commit,))


@pytest.mark.slow
def test_a_lost_reading_of_pages_that_were_read_again_is_repaired_though_the_repair_is_killed(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    read_again(lake)
    before = rows(lake, "SELECT * FROM documents ORDER BY ALL")
    assert main(["check", "--lake", str(lake)]) == 0
    first_file(lake, "inputs").unlink()
    with monkeypatch.context() as patch:
        patch.setattr("pairmill.tasks.upkeep.repair._make_pending", killed)
        assert main(["check", "--repair", "--lake", str(lake)]) == 130
    assert main(["check", "--lake", str(lake)]) == 3
    assert main(["check", "--repair", "--lake", str(lake)]) == 0
    assert rows(lake, "SELECT * FROM documents ORDER BY ALL") == before and not rows(lake, "FROM inputs")


@pytest.mark.slow
@pytest.mark.parametrize("is_gone", [True, False])
def test_a_damaged_file_whose_rows_a_killed_repair_has_committed_anew_is_taken_out(lake: Path, is_gone: bool) -> None:
    before, file = rows(lake, "SELECT * FROM payloads ORDER BY ALL"), first_file(lake, "payloads")
    anew = file.with_name(f"anew-{file.name}")
    anew.write_bytes(data := file.read_bytes())
    with create_or_open(lake) as opened:
        opened.execute("CALL ducklake_add_data_files('lake', 'payloads', ?)", (str(anew),))
        opened.execute(
            "UPDATE partitions SET path = replace(path, ?, ?) WHERE ends_with(path, ?)",
            (file.name, anew.name, file.name),
        )
        second = snapshot.files(opened.unchecked, ("payloads",))[1].data_file  # a doubled file beside it
        opened.execute("CALL ducklake_add_data_files('lake', 'payloads', ?)", (opened.data_path + second,))
    file.unlink() if is_gone else file.write_bytes(data[:-1])
    assert main(["check", "--repair", "--lake", str(lake)]) == 0
    assert rows(lake, "SELECT * FROM payloads ORDER BY ALL") == before


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, 1])
def test_of_a_partition_that_is_recorded_twice_the_whole_file_stays_and_nothing_is_pending(lake: Path, place: int):
    before, file = rows(lake, "SELECT * FROM image_quality ORDER BY ALL"), first_file(lake, "image_quality")
    stem, digest = file.name.rsplit("-", 1)
    copy = file.with_name(f"{stem}z-{digest}")
    copy.write_bytes(file.read_bytes())
    recorded = "SELECT * FROM partitions WHERE \"table\" = 'image_quality' ORDER BY ALL"
    with create_or_open(lake) as opened:
        records = opened.query(recorded)
        opened.execute("CALL ducklake_add_data_files('lake', 'image_quality', ?)", (str(copy),))
        opened.execute(
            "INSERT INTO partitions SELECT * REPLACE (replace(path, ?, ?) AS path) FROM partitions WHERE "
            "ends_with(path, ?)", (file.name, copy.name, file.name),
        )  # fmt: skip
    (file, copy)[place].write_bytes(b"damaged")
    main(["check", "--repair", "--lake", str(lake)])
    assert main(["check", "--lake", str(lake)]) == 0
    assert rows(lake, "SELECT * FROM image_quality ORDER BY ALL") == before
    assert [row[:6] for row in rows(lake, recorded)] == [row[:6] for row in records]
