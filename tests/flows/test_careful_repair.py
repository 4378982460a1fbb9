"""A repair takes nothing out of a lake that only that file has, and what it takes out stays on disk for some days."""

from pathlib import Path

import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.catalog.write.sweep import SNAPSHOT_SECONDS, sweep
from pairmill.flows.command.cli import main
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


def test_a_file_that_is_registered_twice_is_still_there_after_the_repair_and_a_sweep(lake: Path) -> None:
    before, file = rows(lake, "SELECT * FROM payloads ORDER BY ALL"), first_file(lake, "payloads")
    with create_or_open(lake) as opened:
        opened.execute("CALL ducklake_add_data_files('lake', 'payloads', ?)", (str(file),))
    assert len(rows(lake, "SELECT 1 FROM payloads")) > len(before)
    assert main(["check", "--repair", "--lake", str(lake)]) == 0
    swept(lake, 0)
    assert file.exists() and rows(lake, "SELECT * FROM payloads ORDER BY ALL") == before


def test_a_file_without_a_record_stays_if_no_other_has_its_rows(lake: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, file = rows(lake, "SELECT * FROM payloads ORDER BY ALL"), first_file(lake, "payloads")
    with create_or_open(lake) as opened:
        opened.execute("DELETE FROM partitions WHERE ends_with(path, ?)", (file.name,))
    assert main(["check", "--repair", "--lake", str(lake)]) == 3
    assert "2 rows that no other file has would be lost" in capsys.readouterr().out
    assert rows(lake, "SELECT * FROM payloads ORDER BY ALL") == before
    assert main(["check", "--repair", "--lose-rows", "--lake", str(lake)]) == 0
    assert len(rows(lake, "SELECT 1 FROM payloads")) == len(before) - 2


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
