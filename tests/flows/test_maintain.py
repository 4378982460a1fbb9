"""`pairmill maintain` bounds a lake, keeps its versions digest for digest, and can be killed anywhere."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.side_folders import trim
from pairmill.catalog.pending import fetches
from pairmill.catalog.terms.error import LeaseHeld
from pairmill.catalog.upkeep import vacuum as vacuuming
from pairmill.catalog.upkeep.vacuum import vacuum
from pairmill.catalog.write import lease
from pairmill.catalog.write.sweep import sweep
from pairmill.flows.command.cli import main
from pairmill.flows.maintain import Limits, maintain_steps
from pairmill.flows.with_prefect.lake_deployments import maintain
from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curate, rows, work_done
from tests.worlds.shared import copied, opened_new

VERSIONS = ("SELECT * FROM datasets ORDER BY ALL", "SELECT * FROM pairs ORDER BY ALL",
            "SELECT * FROM decisions ORDER BY ALL", "SELECT * FROM funnel ORDER BY ALL")  # fmt: skip


def content(lake: Path) -> list[list[tuple]]:
    return [rows(lake, sql) for sql in VERSIONS]


def age_snapshots(lake: Path, days: int = 8) -> None:
    """Date all snapshots back, and make one of today, which never expires."""
    with create_or_open(lake) as opened:
        opened.metadata.write(f"UPDATE ducklake_snapshot SET snapshot_time = (now() - INTERVAL {days} DAY)::VARCHAR")
        opened.execute("INSERT INTO bans VALUES ('x', 'y', now())")
    for file in (lake / "data").rglob("*.parquet"):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - days * 86_400))


def sizes(lake: Path) -> tuple[int, int]:
    """Return the number of data files on disk and of snapshots."""
    snapshots = rows(lake, "SELECT count(*) FROM lake.snapshots()")[0][0]
    return sum(1 for _ in (lake / "data").rglob("*.parquet")), snapshots


@pytest.mark.slow
def test_a_maintained_lake_has_fewer_files_and_the_same_versions(
    curated_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, versions = sizes(curated_copy), content(curated_copy)
    assert main(["maintain", "--lake", str(curated_copy)]) == 0
    age_snapshots(curated_copy)
    with create_or_open(curated_copy) as lake, lease.writing(lake, "run", "sweep") as writer:
        sweep(writer, older_than_seconds=-1)
    files, snapshots = sizes(curated_copy)
    for table in ("payloads", "sentences", "image_embedding", "sentence_embedding"):
        assert len(list((curated_copy / "data/main" / table).rglob("*.parquet"))) == 1, table
    assert files < before[0] / 3 and snapshots == 1 and content(curated_copy) == versions
    assert main(["check", "--lake", str(curated_copy)]) == 0
    assert main(["maintain", "--lake", str(curated_copy)]) == 0
    assert "removed 0 files" in capsys.readouterr().out.splitlines()[-3]


@pytest.mark.slow  # 30 s: three runs
def test_a_run_over_a_maintained_lake_finds_nothing_to_do_and_makes_of_new_pages_what_it_would_have_made(
    curated: Path, curated_copy: Path, more_pages: Path, tmp_path: Path
) -> None:
    alone = copied(curated, tmp_path / "alone")
    assert main(["maintain", "--lake", str(curated_copy)]) == 0
    published, counts = curate(curated_copy, pages(), settings=small_settings())
    assert not published.is_new and not work_done(counts)
    digests = []
    for lake in (curated_copy, alone):
        curate(lake, pages(), more_pages, settings=small_settings())
        digests.append(rows(lake, "SELECT version, content_digest, n_pairs FROM datasets ORDER BY ALL"))
    assert len(digests[0]) == 2 and digests[0] == digests[1]


@pytest.mark.slow  # 12 s: each kill needs a process of its own
@pytest.mark.parametrize("lines", [pytest.param(n, marks=() if n == 2 else pytest.mark.full) for n in range(4)])
def test_a_maintenance_that_is_killed_leaves_a_whole_lake(curated_copy: Path, lines: int) -> None:
    versions = content(curated_copy)
    age_snapshots(curated_copy)
    command = [sys.executable, "-m", "pairmill.flows.command.cli", "maintain", "--lake", str(curated_copy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for _ in range(lines):
            child.stdout.readline()
        child.kill()
    assert main(["check", "--lake", str(curated_copy), "--deep"]) == 0
    assert main(["maintain", "--lake", str(curated_copy)]) == 0
    assert main(["check", "--lake", str(curated_copy), "--deep"]) == 0 and content(curated_copy) == versions


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with opened_new(tmp_path / "lake") as opened:
        yield opened


def grown_and_emptied(lake: Lake) -> None:
    """Fill a table of the catalog and empty it again, as expired snapshots do."""
    for sql in (
        "CREATE TABLE filler AS SELECT range AS n, repeat('x', 100) AS text FROM range(20000)",
        "DROP TABLE filler",
    ):
        lake.metadata.write(sql)


@pytest.mark.slow
def test_free_pages_of_a_catalog_are_returned_and_the_lake_stays_sealed(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grown_and_emptied(lake)
    with lease.writing(lake, "run", "vacuum") as writer:
        done = vacuum(writer)
        assert done.before > 2_000_000 > 3 * done.after and not done.why
        assert vacuum(writer).before == 0
        monkeypatch.setattr(vacuuming, "SMALLEST_BYTES", 10)
        grown_and_emptied(lake)
        with connect("sqlite_scanner") as reader:
            reader.execute(f"ATTACH '{tmp_path}/lake/catalog.sqlite' AS held (TYPE sqlite, READ_ONLY)")
            reader.execute("BEGIN; SELECT count(*) FROM held.pairmill_lease")
            assert vacuum(writer).why in ("", "database is locked", "another process reads it")
        lake.execute("INSERT INTO bans VALUES ('x', 'y', now())")
    lake.close()
    assert (tmp_path / "lake/catalog.sqlite").stat().st_size < 2_000_000
    assert rows(tmp_path / "lake", "SELECT sha256 FROM bans") == [("x",)]


def test_a_maintenance_beside_a_run_is_refused_by_name(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("deployments", "lake_deployments"):
        name = f"pairmill.flows.with_prefect.{module}.get_run_logger"
        monkeypatch.setattr(name, lambda: logging.getLogger("test"))
    with create_or_open(tmp_path / "lake") as other, lease.writing(lake, "run-1", "curate 30m"):
        with pytest.raises(LeaseHeld, match="run-1, 'curate 30m'"):
            list(maintain_steps(other, Limits(wait_seconds=0)))
        state = maintain.fn(str(tmp_path / "lake"), wait_minutes=0)
        assert state.is_cancelled() and state.name == "Refused" and "curate 30m" in (state.message or "")
    assert maintain.fn(str(tmp_path / "none")).name == "Skipped"


def test_a_run_that_waits_gets_in_between_two_steps_of_a_maintenance(lake: Lake, tmp_path: Path) -> None:
    steps, got_in = maintain_steps(lake, Limits(wait_seconds=60)), threading.Event()

    def run() -> None:
        with create_or_open(tmp_path / "lake") as other, lease.writing(other, "run", "curate", 60):
            got_in.set()

    next(steps)
    waiting = threading.Thread(target=run)
    waiting.start()
    assert got_in.wait(60)
    waiting.join()
    assert len(list(steps)) == 4


def test_an_address_that_keeps_failing_is_fetched_on_a_few_nights_only(lake: Lake) -> None:
    url = "'http://192.0.2.1/a.jpg' AS url"
    lake.execute(f"INSERT INTO links BY NAME SELECT {url}, 'd' AS document_id, 's' AS shard, 0 AS \"commit\"")
    found = []
    for night in range(1, 5):
        failed = f"SELECT {url}, 'timeout' AS reason, true AS passing, 's' AS shard, {night} AS \"commit\""
        lake.execute(f"INSERT INTO fetches BY NAME {failed}")
        found.append(len(fetches.failed_fetches(lake, most_times=3)))
    assert found == [1, 1, 1, 0] and len(fetches.failed_fetches(lake)) == 1


@pytest.mark.slow
def test_a_lake_is_small_by_the_files_that_it_has_not_by_those_that_it_ever_had(curated_copy: Path) -> None:
    has = "SELECT (SELECT count(*) FROM ducklake_data_file) + (SELECT count(*) FROM ducklake_delete_file)"
    assert main(["maintain", "--lake", str(curated_copy)]) == 0
    with create_or_open(curated_copy) as lake, lease.writing(lake, "run-of-a-test", "test") as writer:
        sweep(writer, snapshot_seconds=0)
    with create_or_open(curated_copy, read_only=True) as lake:
        held = lake.metadata.read(has)[0][0]
        ever = lake.metadata.read("SELECT max(next_file_id) FROM ducklake_snapshot")[0][0]
        assert held < ever
        assert snapshot.is_small(lake.unchecked, held) and snapshot.is_small(lake.unchecked, ever)
        assert not snapshot.is_small(lake.unchecked, held - 1) and not snapshot.is_small(lake.unchecked, 1)


def test_only_the_oldest_files_of_a_cache_beyond_its_limit_go(tmp_path: Path) -> None:
    for n in range(10):
        (tmp_path / f"{n}.jpg").write_bytes(bytes(100))
        os.utime(tmp_path / f"{n}.jpg", (n, n))
    assert trim(tmp_path.glob("*.jpg"), 1_000) == 0
    removed_meanwhile = tmp_path / "11.jpg"
    assert trim([*tmp_path.glob("*.jpg"), removed_meanwhile], 600) == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{n}.jpg" for n in range(5, 10)]
