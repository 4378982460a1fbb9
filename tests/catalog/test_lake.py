import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from pairmill.catalog.lake import busy_retry, new_lake, opening, schema
from pairmill.catalog.lake.connection import attach, connect
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.stored_files import file_stamp
from pairmill.catalog.queries.sql.sql_answer import LOCKED, answer
from pairmill.catalog.terms.error import BadQuery, Damaged, NewerLake, PairmillError
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition
from tests.worlds.shared import opened_new


def plain_duckdb(catalog: str | Path) -> duckdb.DuckDBPyConnection:
    """What a user types, with nothing of ours but the extensions."""
    connection = connect("ducklake", "sqlite_scanner")
    connection.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS lake (READ_ONLY)")
    connection.execute("USE lake")
    return connection


def test_a_new_lake_has_its_tables_and_leaves_its_mark_and_three_names_in_the_folder(tmp_path: Path) -> None:
    with create_or_open(tmp_path / "deep" / "lake") as lake:
        assert lake.query("SELECT count(*) FROM images") == [(0,)]
        assert lake.query("SELECT * FROM lease") == []
    assert sorted(os.listdir(tmp_path / "deep" / "lake")) == [
        ".pairmill",
        "catalog.sqlite",
        "catalog.sqlite.seal",
        "data",
    ]


def test_a_lake_whose_marks_are_gone_has_them_once_it_is_opened_to_be_written(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "lake.yaml").write_text("data_path: ../images")
    for uri, folders in (
        (tmp_path / "lake", ["lake"]),
        (tmp_path / "elsewhere" / "lake.yaml", ["elsewhere", "images"]),
    ):
        for read_only in (False, True, False):
            create_or_open(uri, read_only).close()
            marks = [tmp_path / folder / ".pairmill" for folder in folders]
            assert [mark.exists() for mark in marks] == [not read_only] * len(marks)
            for mark in marks:
                mark.unlink(missing_ok=True)


def test_plain_duckdb_reads_the_lake_from_another_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([partition(lake, "p", ["a", "b"], writer.begin("score"))])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    with plain_duckdb("../lake/catalog.sqlite") as connection:
        assert connection.execute("SELECT sha256 FROM image_hash ORDER BY ALL").fetchall() == [("a",), ("b",)]
        # Bookkeeping rows stand inline in the metadata database: a plain reader sees them all the same.
        assert connection.execute('SELECT "table", rows FROM partitions').fetchall() == [("image_hash", 2)]
        assert connection.execute("SELECT step FROM commits").fetchall() == [("score",)]
        assert connection.execute("SELECT count(*) FROM lease").fetchall() == [(0,)]


def test_a_moved_lake_is_read_and_written_where_it_lies_now(tmp_path: Path) -> None:
    with create_or_open(tmp_path / "before") as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([partition(lake, "p", ["a"])])
    shutil.move(tmp_path / "before", tmp_path / "after")
    with create_or_open(tmp_path / "after", read_only=True) as lake:
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
    with create_or_open(tmp_path / "after") as lake, lease.writing(lake, "run2", "test") as writer:
        writer.commit([partition(lake, "q", ["b"], run_id="run2")])
        stored = lake.query("SELECT path_is_relative FROM __ducklake_metadata_lake.ducklake_data_file")
        assert stored and all(relative for (relative,) in stored)
    assert not (tmp_path / "before").exists()
    with plain_duckdb(tmp_path / "after" / "catalog.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM image_hash").fetchall() == [(2,)]


def test_a_lake_whose_data_was_left_behind_is_refused(tmp_path: Path) -> None:
    with create_or_open(tmp_path / "before") as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([partition(lake, "p", ["a"])])
    (tmp_path / "after").mkdir()
    shutil.move(tmp_path / "before" / "catalog.sqlite", tmp_path / "after")
    for read_only in (True, False):
        with pytest.raises(PairmillError, match=r"its data is not at .*after/data/; .*it was at .*before/data/. Move"):
            create_or_open(tmp_path / "after", read_only)
    shutil.move(tmp_path / "before" / "data" / "main", tmp_path / "after" / "data")
    with create_or_open(tmp_path / "after") as lake:
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]


def test_the_lease_can_be_read_under_any_name_of_the_lake(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test"):
        connection = connect("ducklake", "sqlite_scanner")
        connection.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake/catalog.sqlite' AS ours (READ_ONLY)")
        assert connection.execute("SELECT run_id FROM ours.lease").fetchall() == [("run",)]


def test_a_read_only_lake_changes_nothing_and_must_exist(tmp_path: Path) -> None:
    with pytest.raises(PairmillError, match=r"there is no lake at .*pairmill run"):
        create_or_open(tmp_path / "lake", read_only=True)
    assert not (tmp_path / "lake").exists()
    create_or_open(tmp_path / "lake").close()
    before = (tmp_path / "lake" / "catalog.sqlite").read_bytes()
    with create_or_open(tmp_path / "lake", read_only=True) as lake, pytest.raises(duckdb.Error, match=r"read-only"):
        lake.execute("INSERT INTO bans VALUES ('a', 'why', now())")
    assert (tmp_path / "lake" / "catalog.sqlite").read_bytes() == before


READER = """
import sys
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
last = 0
print("ready", flush=True)
while last < int(sys.argv[2]):
    with create_or_open(sys.argv[1], read_only=True) as lake:
        sql = "SELECT (SELECT count(*) FROM image_hash), (SELECT coalesce(sum(rows), 0) FROM partitions)"
        rows, told = lake.query(sql)[0]
        assert rows == told and rows >= last, (rows, told, last)
        last = rows
print("saw", last)
"""


@pytest.mark.slow
def test_another_process_reads_while_this_one_commits(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        command = [sys.executable, "-c", READER, str(tmp_path / "lake"), "60"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None and reader.stdout.readline() == "ready\n"
            for number in range(30):
                writer.commit([partition(lake, f"p{number}", [f"{number}a", f"{number}b"])])
            assert reader.communicate(timeout=60)[0] == "saw 60\n"
            assert reader.returncode == 0


def test_threads_share_a_lake_and_a_transaction_has_it_to_itself(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:

        def ban(name: str) -> None:
            for _ in range(5):
                lake.retrying(lambda: [lake.execute("INSERT INTO bans VALUES (?, '', now())", (name,)) for _ in "ab"])

        threads = [threading.Thread(target=ban, args=(name,)) for name in "xyz"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert lake.query("SELECT sha256, count(*) FROM bans GROUP BY ALL ORDER BY ALL") == [
            ("x", 10),
            ("y", 10),
            ("z", 10),
        ]


def test_a_transaction_that_fails_leaves_nothing(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        with pytest.raises(ZeroDivisionError), lake.transaction():
            lake.execute("INSERT INTO bans VALUES ('a', '', now())")
            raise ZeroDivisionError
        assert lake.query("SELECT * FROM bans") == []


def test_a_transaction_that_another_commit_overtook_is_run_again_as_a_whole(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as ours, create_or_open(tmp_path / "lake") as theirs:
        tries = []

        def body() -> None:
            tries.append(ours.query("SELECT count(*) FROM bans")[0][0])
            if len(tries) == 1:
                theirs.execute("INSERT INTO bans VALUES ('theirs', '', now())")
            ours.execute("INSERT INTO bans VALUES ('ours', '', now())")

        ours.retrying(body)
        assert tries == [0, 1]
        assert ours.query("SELECT sha256 FROM bans ORDER BY ALL") == [("ours",), ("theirs",)]


def test_a_catalog_that_stays_locked_is_given_up_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(busy_retry, "SECONDS", 0.2)
    with opened_new(tmp_path / "lake") as lake:

        def locked() -> None:
            raise duckdb.TransactionException("database is locked")

        with pytest.raises(PairmillError, match=r"busy for 0 s.*pairmill status"):
            lake.retrying(locked)
        assert lake.query("SELECT 1") == [(1,)]


@pytest.mark.parametrize("read_only", [True, False])
def test_who_opens_a_lake_waits_for_the_lock_of_who_closes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    """SQLite refuses for moments that no test can hit; so the second statement of an attachment meets a lock here."""
    opened_new(tmp_path / "lake").close()
    refusals = iter([True, True, False])

    def refused_twice(*arguments: Any) -> None:
        attach(*arguments)
        if next(refusals):
            raise duckdb.Error("Failed to query most recent snapshot for DuckLake: database is locked")

    monkeypatch.setattr(opening, "attach", refused_twice)
    with create_or_open(tmp_path / "lake", read_only=read_only) as lake:
        assert lake.query("SELECT count(*) FROM images") == [(0,)]
    assert not list(refusals)


@pytest.mark.parametrize("left", [None, b""])
def test_a_reader_is_told_that_data_lost_its_catalog(tmp_path: Path, left: bytes | None) -> None:
    """As a power cut may leave it; "make one with `pairmill run`" would be the wrong advice."""
    place = tmp_path / "lake"
    with opened_new(place) as lake, lease.writing(lake, "run", "work") as writer:
        writer.commit([partition(lake, "p", ["a"], writer.begin("step"))])
    (place / "catalog.sqlite.seal").unlink()
    (place / "catalog.sqlite").unlink()
    if left is not None:
        (place / "catalog.sqlite").write_bytes(left)
    for read_only in (True, False):
        with pytest.raises(PairmillError, match=r"there is data .*/main/.*catalog.sqlite is missing.*Put the catalog"):
            create_or_open(place, read_only)


def test_a_full_disk_that_duckdb_calls_a_runtime_error_is_told(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:

        def full() -> None:
            raise RuntimeError('Failed to execute query "PRAGMA journal_mode=wal": disk I/O error')

        def wrong() -> None:
            raise RuntimeError("a fault of the program")

        with pytest.raises(PairmillError, match=r"disk is full, or fails. Free some space and run again"):
            lake.retrying(full)
        with pytest.raises(RuntimeError, match=r"a fault of the program"):
            lake.retrying(wrong)


@pytest.fixture
def _short_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB gives a lock up at once, not after 5 s."""
    attach = Metadata._attach
    monkeypatch.setattr(Metadata, "_attach", lambda self, options: attach(self, f"{options}, BUSY_TIMEOUT 10"))


def test_a_writer_waits_for_a_reader_whose_rows_are_not_taken_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _short_locks: None
) -> None:
    """A reader of a closed catalog holds its journal: who writes cannot begin another one meanwhile."""
    opened_new(tmp_path / "lake").close()
    reader = create_or_open(tmp_path / "lake", read_only=True)
    rows = answer(reader, "SELECT range, (SELECT count(*) FROM images) FROM range(10_000_000)")[1]
    assert next(rows) == (0, 0)
    waits: list[float] = []
    monkeypatch.setattr(busy_retry.time, "sleep", lambda seconds: (waits.append(seconds), reader.close()))
    with create_or_open(tmp_path / "lake") as lake:
        assert waits and lake.query("SELECT count(*) FROM images") == [(0,)]


def test_a_reader_that_never_ends_is_named_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, _short_locks: None
) -> None:
    opened_new(tmp_path / "lake").close()
    monkeypatch.setattr(busy_retry, "SECONDS", 0.1)
    with create_or_open(tmp_path / "lake", read_only=True) as reader:
        rows = answer(reader, "SELECT range, (SELECT count(*) FROM images) FROM range(10_000_000)")[1]
        assert next(rows) == (0, 0)
        with pytest.raises(PairmillError, match=r"catalog was busy.*`pairmill sql` in a pager"):
            create_or_open(tmp_path / "lake")


def test_a_statement_that_meets_a_lock_is_asked_again(tmp_path: Path) -> None:
    """As DuckDB says it where another process closes the lake for longer than its 5 s."""
    failing = f"SELECT CASE WHEN nextval('tries') < 3 THEN error('{LOCKED}') ELSE 'found' END"
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("CREATE TEMP SEQUENCE tries")
        assert [*answer(lake, failing)[1]] == [("found",)]


def test_a_lake_of_a_newer_schema_is_refused_untouched(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO schema_version VALUES (1, 99, now())")
    before = (tmp_path / "lake" / "catalog.sqlite").read_bytes()
    for read_only in (True, False):
        with pytest.raises(NewerLake, match=r"made by a newer Pairmill .format 1, schema 99;.*Install"):
            create_or_open(tmp_path / "lake", read_only)
    assert (tmp_path / "lake" / "catalog.sqlite").stat().st_size == len(before)


def test_a_lake_of_a_newer_ducklake_is_refused(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        lake.metadata.write("UPDATE ducklake_metadata SET value = '9.0' WHERE key = 'version'")
    with pytest.raises(NewerLake, match=r"DuckLake format 9\.0, newer"):
        create_or_open(tmp_path / "lake")


def test_wrong_sql_is_the_users_to_mend(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        for sql in ("SELECT widht FROM images", "SELEC 1", "SELECT * FROM imagse", "SELECT 'x'::INTEGER"):
            with pytest.raises(BadQuery):
                lake.query(sql)
        with pytest.raises(BadQuery, match=r"width"):
            lake.query("SELECT widht FROM images")


def test_a_file_where_the_folder_should_be_and_a_damaged_catalog_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(PairmillError, match=r"is a file. Name a folder"):
        create_or_open(tmp_path / "file")
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "catalog.sqlite").write_bytes(b"no database at all" * 100)
    for read_only in (True, False):
        with pytest.raises(PairmillError, match=r"catalog file is damaged"):
            create_or_open(tmp_path / "lake", read_only)


def as_another_user() -> list[str]:
    """Root may write anywhere: step down to a user who can still run this Python, or skip."""
    if os.geteuid() != 0:
        return []
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if shutil.which("setpriv") is None or subprocess.run([*other, sys.executable, "-c", "import duckdb"]).returncode:
        pytest.skip("root may write anywhere, and no other user can run this Python")
    return other


def test_a_lake_that_may_not_be_written_says_so_and_can_still_be_read() -> None:
    script = (
        "import sys; from pairmill.catalog.lake.opening import create_or_open\n"
        "print(create_or_open(sys.argv[1], read_only=True).query('SELECT count(*) FROM images'))\n"
        "try: create_or_open(sys.argv[1])\nexcept Exception as error: print(type(error).__name__, error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folder is closed to others
        path = Path(folder)
        create_or_open(path).close()
        (path / "catalog.sqlite").chmod(0o444)
        path.chmod(0o555)
        command = [*as_another_user(), sys.executable, "-c", script, folder]
        done = subprocess.run(command, capture_output=True, text=True)
        path.chmod(0o755)
    assert done.stdout.splitlines()[:1] == ["[(0,)]"], done.stderr
    assert "NotWritable" in done.stdout and "Check its owner and rights" in done.stdout


HARMS = {
    "missing": Path.unlink,
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:5000]),
}


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS)
def test_no_new_catalog_is_made_over_the_data_of_a_lost_one(tmp_path: Path, harm, sealed: bool) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([partition(lake, "p", ["a"], writer.begin("step"))])
    harm(tmp_path / "lake/catalog.sqlite")
    if not sealed:
        (tmp_path / "lake/catalog.sqlite.seal").unlink()
    told = r"its catalog .*(gone|damaged|missing or empty).*(Put (it|the catalog) back|Restore catalog.sqlite)"
    for _ in range(2):  # the first try leaves no catalog either
        with pytest.raises(PairmillError, match=told):
            create_or_open(tmp_path / "lake")


@pytest.mark.slow
def test_a_reader_of_a_lake_that_is_being_made_waits_for_its_tables(tmp_path: Path, monkeypatch) -> None:
    making, seen, migrate = threading.Event(), threading.Event(), schema.migrate

    def slowly(lake: Lake) -> None:
        making.set()
        seen.wait(10)
        migrate(lake)

    monkeypatch.setattr(new_lake, "SHIPPED", tmp_path / "nothing")
    monkeypatch.setattr(schema, "migrate", slowly)
    maker = threading.Thread(target=lambda: create_or_open(tmp_path / "lake").close())
    maker.start()
    assert making.wait(60)
    threading.Timer(1.0, seen.set).start()
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT count(*) FROM documents") == [(0,)]
    maker.join()


def test_a_reader_of_a_lake_whose_making_was_cut_short_is_told(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(new_lake, "SHIPPED", tmp_path / "nothing")
    monkeypatch.setattr(schema, "migrate", lambda lake: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        create_or_open(tmp_path / "lake")
    with pytest.raises(PairmillError, match="the run that creates it was stopped"):
        create_or_open(tmp_path / "lake", read_only=True)


def changed(file: Path, at: int) -> None:
    """Flip a bit of one byte."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("read_only", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_changed_byte_of_a_table_is_found_before_the_table_is_read(tmp_path: Path, read_only: bool) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([partition(lake, "p", ["a"], writer.begin("step"))])
        lake.execute("INSERT INTO sentence_content VALUES ('c', 'text', 's', 1)")  # its file is DuckDB's own
    files = sorted((tmp_path / "lake").rglob("*.parquet"))
    assert len(files) == 2
    for file, table in zip(files, ("image_hash", "sentence_content"), strict=True):
        assert table in str(file)
        whole = file.read_bytes()
        for harm in (lambda file: changed(file, 40), lambda file: file.write_bytes(whole[:100]), Path.unlink):  # noqa: B023
            harm(file)
            with create_or_open(tmp_path / "lake", read_only) as lake:
                with pytest.raises(Damaged, match=rf"its file {file} is (damaged|gone).*Put it back"):
                    lake.query(f"SELECT count(*) FROM {table}")
                assert lake.query("SELECT count(*) FROM images") == [(0,)], "other tables can be read"
            file.write_bytes(whole)
            with create_or_open(tmp_path / "lake", read_only) as lake:
                assert lake.query(f"SELECT count(*) FROM {table}") == [(1,)]


def test_views_are_checked_with_the_tables_that_they_read(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO match_candidates VALUES ('p', 's', 0.5, 'shard', 'scorer', 1)")
    (file,) = (tmp_path / "lake").rglob("*.parquet")
    changed(file, 40)
    with create_or_open(tmp_path / "lake", read_only=True) as lake, pytest.raises(Damaged):
        lake.query("SELECT * FROM matches")


def test_a_copied_lake_is_checked_once_and_its_writer_puts_that_on_record(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO match_candidates VALUES ('p', 's', 0.5, 'shard', 'scorer', 1)")
        kept = lake.checksums
        kept.record()
        before = lake.metadata.read("SELECT * FROM pairmill_files")
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    with create_or_open(tmp_path / "copy") as lake:
        assert lake.query("SELECT count(*) FROM match_candidates") == [(1,)]
    with create_or_open(tmp_path / "copy", read_only=True) as lake:
        ((path, sha256, stamp),) = lake.metadata.read("SELECT * FROM pairmill_files")
    assert [(path, sha256)] == [row[:2] for row in before] and stamp != before[0][2]
    assert stamp == file_stamp(str(tmp_path / "copy/data" / path))


def test_a_changed_byte_of_the_catalog_is_found(tmp_path: Path) -> None:
    catalog, seal = tmp_path / "lake/catalog.sqlite", tmp_path / "lake/catalog.sqlite.seal"
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO bans VALUES ('s', 'because', now())")
        with create_or_open(tmp_path / "lake") as other:
            other.execute("INSERT INTO bans VALUES ('t', 'because', now())")
        with create_or_open(tmp_path / "lake", read_only=True) as reader:
            assert reader.query("SELECT count(*) FROM bans") == [(2,)]
    assert seal.exists()
    changed(catalog, catalog.read_bytes().index(b"because"))
    for read_only in (True, False):
        with pytest.raises(Damaged, match=r"its catalog .* is damaged.*Put it back from a copy"):
            create_or_open(tmp_path / "lake", read_only)
    changed(catalog, catalog.read_bytes().index(b"cecause"))
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT DISTINCT reason FROM bans") == [("because",)]


def test_a_rule_that_overflows_on_some_rows_is_told_as_a_mistake_in_one_line(lake: Lake) -> None:
    with pytest.raises(BadQuery, match="Overflow") as told:
        lake.query("SELECT n * n FROM (VALUES (9223372036854775807)) rows (n) -- a rule\n")
    assert "\n" not in str(told.value)


def test_statements_without_the_tables_find_temporary_tables_alone_and_check_no_file(lake: Lake) -> None:
    lake.execute("CREATE OR REPLACE TEMP TABLE few AS SELECT 1 AS n")
    with lake.pinned() as pinned:
        with lake.without_tables():
            assert lake.query("SELECT count(*) AS images FROM few") == [(1,)]
            with pytest.raises(BadQuery, match="images does not exist"):
                lake.query("SELECT count(*) FROM images")
        assert lake.query("SELECT current_catalog()") == [(pinned,)]
        assert lake.query("SELECT count(*) FROM images")
    assert lake.query("SELECT current_catalog(), (SELECT count(*) >= 0 FROM images)") == [("lake", True)]


def test_asking_whether_there_is_a_lake_makes_none(tmp_path: Path) -> None:
    with pytest.raises(PairmillError, match="there is no lake at"):
        check_is_lake(str(tmp_path / "lake"))
    assert not list(tmp_path.iterdir())
    create_or_open(tmp_path / "lake").close()
    check_is_lake(str(tmp_path / "lake"))
