"""What a killed writer leaves is guarded like what a finished one leaves: each flipped bit is found before it is read.

The catalog's write-ahead log is left where somebody read the lake at that moment.
"""

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.location import Location, locate
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition
from tests.worlds.shared import new_lake

WRITER = """
import sys, time
from pairmill.catalog.lake import seal
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition
place, log = sys.argv[1:]
seal.SHARE = 0  # on a busy machine a short sealing takes long, and the next changes would go without
with create_or_open(place) as lake, lease.writing(lake, "run", "work") as writer:
    if log == "log":
        reader = connect("sqlite_scanner")
        reader.execute(f"ATTACH '{place}/catalog.sqlite' AS held (TYPE sqlite, READ_ONLY)")
        reader.execute("BEGIN; SELECT count(*) FROM held.pairmill_lease")
    for n in range(3):
        writer.commit([partition(lake, f"p{n}", [f"{n}a", f"{n}b"], writer.begin("step"))])
    row = "('d', 1, 'kept', 'image', '', '', 0)"
    lake.retrying(lambda: lake.execute(f"INSERT INTO decisions VALUES {row}"))
    print("done", flush=True)
    time.sleep(600)
"""
HALF_WRITTEN = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 5")  # pages, so that the change reaches the file before its COMMIT
connection.execute("BEGIN")
connection.execute("DELETE FROM ducklake_column")
connection.execute("CREATE TABLE ducklake_other AS SELECT randomblob(1000000) AS data")
os._exit(9)
"""
READER = """
import sys
from pairmill.catalog.lake.opening import create_or_open
for _ in range(12):
    with create_or_open(sys.argv[1], read_only=True) as lake:
        lake.query("SELECT count(*) FROM image_hash")
"""
ASKED = ("SELECT sha256 FROM image_hash ORDER BY ALL", "SELECT item_id FROM decisions",
         "SELECT partition_id, rows FROM partitions ORDER BY ALL", 'SELECT "commit", step FROM commits')  # fmt: skip


@pytest.fixture(scope="module", params=["log", "no log"])
def killed(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A lake whose writer was killed after four commits: its digests were never written out."""
    place = new_lake(tmp_path_factory.mktemp("killed") / "lake")
    command = [sys.executable, "-c", WRITER, str(place), request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "done\n"
        writer.send_signal(signal.SIGKILL)
    assert (place / "catalog.sqlite-wal").exists() == (request.param == "log")
    return place


def answers(place: Path, read_only: bool) -> list[list[tuple]]:
    with create_or_open(place, read_only) as lake:
        return [lake.query(sql) for sql in ASKED]


def test_a_reader_rolls_back_a_change_of_the_catalog_that_was_never_committed(tmp_path: Path):
    place = new_lake(tmp_path / "lake")
    with create_or_open(place) as lake, lease.writing(lake, "run", "work") as writer:
        writer.commit([partition(lake, "p", ["a", "b"], writer.begin("step"))])
    before, journal = answers(place, read_only=True), place / "catalog.sqlite-journal"
    seal.remove(locate(str(place)))  # as every change of a catalog does first
    assert subprocess.run([sys.executable, "-c", HALF_WRITTEN, str(place / "catalog.sqlite")]).returncode == 9
    assert journal.stat().st_size
    assert answers(place, read_only=True) == before and len(before[0]) == 2
    assert not journal.exists()


def flipped(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


@pytest.mark.slow
@pytest.mark.parametrize("read_only", [True, False])
def test_each_flipped_bit_of_a_killed_lake_is_found(killed: Path, tmp_path: Path, read_only: bool) -> None:
    chance = random.Random(7)
    whole = answers(shutil.copytree(killed, tmp_path / "whole"), read_only)
    assert [len(rows) for rows in whole] == [6, 1, 3, 3]
    endings = (".parquet", ".sqlite", ".sqlite-wal")
    files = [path.relative_to(killed) for path in killed.rglob("*") if path.suffix in endings]
    assert len(files) >= 5
    for n, name in enumerate(files):
        place = shutil.copytree(killed, tmp_path / str(n))
        flipped(place / name, chance)
        with pytest.raises(Damaged, match=r"is damaged: it .*Put it back from a copy"):
            answers(place, read_only)


def test_a_writer_that_finds_a_damaged_file_does_not_certify_it(killed: Path, tmp_path: Path) -> None:
    place = shutil.copytree(killed, tmp_path / "lake")
    (file,) = place.glob("data/main/decisions/*.parquet")
    flipped(file, random.Random(1))
    create_or_open(place).close()
    for read_only in (False, True):
        with create_or_open(place, read_only) as lake, pytest.raises(Damaged, match=str(file)):
            lake.query("SELECT * FROM decisions")


def test_a_killed_lake_is_gone_on_with_and_closed_whole(killed: Path, tmp_path: Path) -> None:
    place = shutil.copytree(killed, tmp_path / "lake")
    with create_or_open(place) as lake, lease.writing(lake, "next", "work") as writer:
        writer.commit([partition(lake, "p9", ["9"], writer.begin("step"))])
    assert not (place / "catalog.sqlite-wal").exists()
    assert [len(rows) for rows in answers(place, True)] == [7, 1, 4, 4]


@pytest.mark.parametrize("killed", ["log"], indirect=True)
def test_a_log_that_another_boot_sealed_is_taken_as_it_is(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut a seal may be older than the log: nobody knows which of the two reached the disk."""
    place = shutil.copytree(killed, tmp_path / "lake")
    monkeypatch.setattr(seal, "host_since_boot", lambda: f"{host_since_boot()} again")
    flipped(place / "catalog.sqlite-wal", random.Random(3))
    seal.check(locate(place))


@pytest.mark.parametrize("killed", ["log"], indirect=True)
def test_a_log_that_is_being_merged_is_waited_for(
    killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = shutil.copytree(killed, tmp_path / "lake")
    file = place / "catalog.sqlite.seal"
    fitting = file.read_text()
    file.write_text(fitting.replace('"sha256": "', '"sha256": "0').replace('"stamp": "', '"stamp": "0'))
    waited: list[float] = []

    def replace(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            file.write_text(fitting)

    monkeypatch.setattr("pairmill.catalog.lake.seal.time.sleep", replace)
    seal.check(locate(place))
    assert len(waited) == 2


@pytest.fixture
def closed(tmp_path: Path) -> Location:
    """A sealed file in place of a catalog, because only its bytes matter."""
    location = locate(str(tmp_path))
    Path(location.metadata).write_bytes(b"0")
    with seal.closing(location):
        pass
    return location


def test_a_seal_that_another_change_outdates_does_not_stay(closed: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    catalog, digest = Path(closed.metadata), seal.file_digest
    one, other = seal.Seal(closed), seal.Seal(closed)  # of two processes
    other._due = float("inf")  # its seal would cost too large a share of its time

    def change() -> None:
        with other.broken():
            catalog.write_bytes(b"2")

    between = threading.Thread(target=change)

    def digest_while_another_changes(path: str) -> str:
        found = digest(path)
        between.start()
        between.join(0.3)
        return found

    with monkeypatch.context() as patch, one.broken():
        patch.setattr(seal, "file_digest", digest_while_another_changes)
        catalog.write_bytes(b"1")
    between.join()
    seal.check(closed)


def test_a_log_that_a_reader_merges_while_the_catalog_is_sealed_leaves_no_wrong_seal(
    closed: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite merges the log when the last reader closes, which takes no lock of ours."""
    catalog, log, digest = Path(closed.metadata), Path(f"{closed.metadata}-wal"), seal.file_digest

    def digest_then_merge(path: str) -> str:
        found = digest(path)
        catalog.write_bytes(b"merged")
        log.unlink()
        return found

    with seal.Seal(closed).broken():
        log.write_bytes(b"log")
        monkeypatch.setattr(seal, "file_digest", digest_then_merge)
    monkeypatch.undo()
    seal.check(closed)


def test_a_log_whose_merging_ends_during_the_comparison_is_no_damage(
    closed: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, log, compare = Path(closed.metadata), Path(f"{closed.metadata}-wal"), seal._is_right
    with seal.Seal(closed).broken():
        log.write_bytes(b"log")
    catalog.write_bytes(b"half merged")
    compared: list[bool] = []

    def compare_then_merge(location: Location) -> bool:
        compared.append(compare(location))
        if len(compared) == 2:
            log.unlink()
        return compared[-1]

    monkeypatch.setattr(seal, "_is_right", compare_then_merge)
    seal.check(closed)
    assert compared == [False, False, True]


def test_a_catalog_that_is_being_opened_or_changed_is_not_taken_for_damaged(closed: Location) -> None:
    file, began = Path(f"{closed.metadata}.seal"), threading.Event()
    sealed = file.read_bytes()

    def open_it() -> None:
        with seal.opening(closed):
            file.write_bytes(sealed)  # of one that closed it at that moment
            Path(closed.metadata).write_bytes(b"1")
            began.set()
            time.sleep(1.5)  # longer than a log is waited for that is being merged
            seal.remove(closed)

    opener = threading.Thread(target=open_it)
    opener.start()
    assert began.wait(10)
    seal.check(closed)
    opener.join()
    file.write_bytes(sealed)
    with pytest.raises(Damaged):  # nobody changes it now
        seal.check(closed)


@pytest.mark.slow
def test_readers_beside_a_writer_see_no_damage(tmp_path: Path) -> None:
    place = new_lake(tmp_path / "lake")
    with create_or_open(place) as lake, lease.writing(lake, "run", "work") as writer:
        writer.commit([partition(lake, "first", ["a"], writer.begin("step"))])
        with subprocess.Popen([sys.executable, "-c", READER, str(place)], stderr=subprocess.PIPE, text=True) as readers:
            for n in range(60):
                writer.commit([partition(lake, f"p{n}", [f"{n}"], writer.begin("step"))])
            assert readers.wait(120) == 0, readers.stderr and readers.stderr.read()


def test_a_seal_that_cannot_be_written_costs_no_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with create_or_open(new_lake(tmp_path / "lake")) as lake, lease.writing(lake, "run", "work") as writer:
        monkeypatch.setattr(seal, "_replace_seal", full)
        assert writer.commit([partition(lake, "p", ["a"], writer.begin("step"))]) == 1
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT count(*) FROM image_hash") == [(1,)]
