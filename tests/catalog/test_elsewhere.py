"""Lakes whose data lies on S3, whose metadata lies in Postgres, or whose disk is full: the real things, run here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake import lease_row
from pairmill.catalog.lake.connection import connect, use_s3_credentials
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.location import locate
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.schema import NEWEST
from pairmill.catalog.queries.sql import sql_answer
from pairmill.catalog.queries.sql.sql_answer import answer, answer_confined, confine
from pairmill.catalog.terms.error import BadQuery, LeaseHeld, PairmillError
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.finished import state
from pairmill.catalog.write.sweep import checkpoint, sweep
from tests.worlds.elsewhere import free_port, remote_partition, write_yaml
from tests.worlds.elsewhere import postgres as postgres
from tests.worlds.elsewhere import s3 as s3
from tests.worlds.escapes import FILES, TABLES
from tests.worlds.published import published
from tests.worlds.random_lake import fill, plan, world


@pytest.mark.slow
def test_a_writer_keeps_no_bytes_of_the_files_it_reads_in_memory(tmp_path: Path, s3: s3fs.S3FileSystem) -> None:
    place = write_yaml(tmp_path / "lake", data_path="s3://bucket/lake")
    with create_or_open(place) as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([remote_partition(lake, s3, "a")])
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
        assert lake.query("SELECT memory_usage_bytes FROM duckdb_memory() WHERE tag = 'EXTERNAL_FILE_CACHE'") == [(0,)]


@pytest.mark.slow
def test_a_lake_keeps_its_data_on_s3(tmp_path: Path, s3: s3fs.S3FileSystem) -> None:
    place = write_yaml(tmp_path / "lake", data_path="s3://bucket/team/lake")
    with create_or_open(place) as lake, lease.writing(lake, "run", "test") as writer:
        assert lake.data_path == "s3://bucket/team/lake/"
        assert writer.commit([remote_partition(lake, s3, "a")]) == 1
        orphan = remote_partition(lake, s3, "orphan")
        assert sweep(writer)[1] == []
        assert sweep(writer, older_than_seconds=-1000)[1] == [orphan.path]
        with pytest.raises(Exception, match=r"gone"):
            writer.commit(
                [Manifest("image_hash", "g", "g", "k", 1, 1, 1, orphan.path.replace("orphan", "gone"), 1, "run")]
            )
    # The folder that holds the lake.yaml is the lake as well.
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
        s3.pipe("bucket/team/other.txt", b"secret")
        assert [*answer_confined(lake, "SELECT sha256 FROM image_hash")[1]] == [("a",)]
        for beyond in ("s3://bucket/team/other.txt", "s3://bucket/team/*", str(place)):
            with pytest.raises(BadQuery, match=r"--allow-files"):
                answer(lake, f"SELECT content FROM read_text('{beyond}')")
    with connect("ducklake", "sqlite_scanner", "httpfs") as plain:
        use_s3_credentials(plain)
        plain.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake/catalog.sqlite' AS lake (READ_ONLY)")
        assert plain.execute("SELECT sha256 FROM lake.image_hash").fetchall() == [("a",)]


def test_s3_that_cannot_be_reached_is_told_before_a_lake_is_made(
    tmp_path: Path, s3: s3fs.S3FileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write_yaml(tmp_path / "lake", data_path="s3://no-such-bucket/lake")
    with pytest.raises(
        PairmillError, match=r"S3 storage cannot be reached or refuses. Check `data_path`, AWS_ENDPOINT_URL"
    ):
        create_or_open(place)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(PairmillError, match=r"S3 storage cannot be reached"):
        create_or_open(place)
    assert not (tmp_path / "lake" / "catalog.sqlite").exists()


@pytest.mark.slow
def test_maintenance_of_a_lake_with_postgres_writes_files_with_deleted_rows_anew(tmp_path: Path, postgres: str) -> None:
    place = write_yaml(tmp_path / "lake", metadata=postgres, data_path="data")
    with create_or_open(place) as lake, lease.writing(lake, "run", "sweep") as writer:
        for name in ("a", "b"):
            writer.commit([local_partition(lake, name)])
            lake.execute("INSERT INTO runs VALUES (?, 'curate', 'demo', 'running', now(), NULL, '')", (name,))
            checkpoint(writer)
            lake.execute("UPDATE runs SET state = 'done'")  # every row of the file: it is emptied
        writer.commit([local_partition(lake, "c")])
        lake.execute("DELETE FROM image_hash WHERE sha256 = 'a'")
        known = state(lake)
        checkpoint(writer)
        assert state(lake) == known
        for table, n in (("runs", 2), ("image_hash", 2)):
            files = lake.query(f"SELECT data_file, delete_file FROM ducklake_list_files('lake', '{table}')")
            assert [deleted for _, deleted in files] == [None] and lake.query(f"SELECT count(*) FROM {table}") == [(n,)]
        bounds = (
            "SELECT DISTINCT column_name FROM ducklake_file_column_stats JOIN ducklake_column USING (table_id, "
            "column_id) JOIN ducklake_table USING (table_id) WHERE table_name = 'image_hash'"
        )
        assert sorted(lake.metadata.read(bounds)) == [("scorer",), ("shard",)]


def local_partition(lake: Lake, name: str) -> Manifest:
    path = f"{lake.staging('image_hash', 'run')}/{name}.parquet"
    columns = {"sha256": [name], "shard": [name], "scorer": ["k"], "commit": pa.array([1], pa.int64())}
    columns |= {"phash": pa.array([1], pa.uint64()), "flat_colours": pa.nulls(1, pa.string())}
    pq.write_table(pa.table(columns), path)
    return Manifest("image_hash", name, name, "k", 1, 100, 0.1, path, 1, "run")


@pytest.mark.slow
def test_a_team_keeps_its_metadata_in_postgres(tmp_path: Path, postgres: str) -> None:
    place = write_yaml(tmp_path / "lake", metadata=postgres, data_path="data")
    with create_or_open(place) as lake, create_or_open(place) as other:
        with lease.writing(lake, "run", "test") as writer:
            assert writer.begin("step") == 1
            assert writer.commit([local_partition(lake, "a")]) == 1
            assert writer.commit([local_partition(lake, "a")]) == 0
            assert other.query("SELECT run_id FROM lease") == [("run",)]
            with pytest.raises(LeaseHeld, match=r"run run, 'test'"), lease.writing(other, "run2", "test"):
                pass
        with lease.writing(other, "run2", "test") as second:
            assert second.begin("step") == 2
    with create_or_open(place, read_only=True) as lake:
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
        assert lake.query("SELECT partition_id, rows FROM partitions") == [("a", 1)]
        assert [*answer_confined(lake, "SELECT sha256 FROM image_hash")[1]] == [("a",)]
        with pytest.raises(BadQuery, match=r"postgres_scan\(\) may do more"):
            answer_confined(lake, f"FROM postgres_scan('{postgres}', 'public', 'pairmill_lease')")
        assert [row[0] for row in lake.query("SELECT version FROM schema_version ORDER BY ALL")] == [
            *range(1, NEWEST + 1)
        ]


OTHERS = "CREATE TABLE other AS SELECT ''a secret'' AS text; CREATE ROLE reader LOGIN; "
READER = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader"


@pytest.mark.parametrize("role", ["me", "reader"])
@pytest.mark.slow
def test_sql_reads_no_other_table_of_a_lakes_postgres(tmp_path: Path, postgres: str, role: str) -> None:
    """Also the owner's SQL is confined. A role that may only SELECT can read a lake."""
    place = write_yaml(tmp_path / "lake", metadata=postgres, data_path="data")
    with create_or_open(place) as lake, lease.writing(lake, "run", "test") as writer:
        writer.commit([local_partition(lake, "a")])
    with connect("postgres_scanner") as plain:
        plain.execute(f"ATTACH '{postgres}' AS pg (TYPE postgres); CALL postgres_execute('pg', '{OTHERS}{READER}')")
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n1\n")
    files = sorted(tmp_path.rglob("*"))
    place = write_yaml(tmp_path / "lake", metadata=postgres.replace("me@", f"{role}@"), data_path="data")
    # One lake for all, confined for good; on local lakes each statement has one that was just opened.
    with create_or_open(place, read_only=True) as lake, pytest.MonkeyPatch.context() as patched:
        confine(lake)
        patched.setattr(sql_answer, "confine", lambda lake: None)
        for sql in [*TABLES, *FILES]:
            sql = sql.format(lake=tmp_path / "lake", outside=outside, new=tmp_path / "new.csv")
            with pytest.raises(BadQuery) as refused:
                pytest.fail(f"{sql}: {list(answer_confined(lake, sql)[1])}")
            assert "a secret" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == files
    with create_or_open(place, read_only=True) as lake:
        rows = answer_confined(lake, "SELECT table_name, sha256 FROM duckdb_tables(), image_hash")[1]
        names = {name for name, sha256 in rows if sha256 == "a"}
        assert "image_hash" in names and not names & {"other", "pairmill_lease"}


@pytest.mark.slow
def test_a_cut_is_the_same_wherever_the_lake_lies(tmp_path: Path, s3: s3fs.S3FileSystem, postgres: str) -> None:
    elsewhere = write_yaml(tmp_path / "elsewhere", metadata=postgres, data_path="s3://bucket/lake")
    found = []
    for place in (tmp_path / "here", elsewhere):
        with create_or_open(place) as lake:
            fill(lake, *world(7))
            cut(lake, plan())
            decided = lake.query("SELECT image_id, dropped_by, dropped_value FROM cut_images ORDER BY ALL")
            found.append((decided, lake.query("FROM cut_texts ORDER BY ALL")))
    assert found[0] == found[1] and all(found[0])


@pytest.mark.slow
def test_a_holder_that_was_overtaken_cannot_finish_its_commit_on_postgres(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 0.2)
    place = write_yaml(tmp_path / "lake", metadata=postgres, data_path="data")
    with create_or_open(place) as stalled, create_or_open(place) as taker:
        with lease.writing(stalled, "stalled", "test") as writer:
            check, overtaken = writer.check, []

            def check_then_stall() -> None:
                check()
                if not overtaken:
                    overtaken.append(True)
                    taker.metadata.write("UPDATE pairmill_lease SET host = 'another machine'")
                    with lease.writing(taker, "taker", "test") as second:
                        second.commit([local_partition(taker, "a")])

            stalled.guard = check_then_stall
            with pytest.raises(PairmillError, match=r"no longer holds the lease"):
                writer.commit([local_partition(stalled, "a")])
        assert stalled.query("SELECT count(*) FROM image_hash") == [(1,)]


def test_postgres_that_cannot_be_reached_is_told(tmp_path: Path) -> None:
    place = write_yaml(tmp_path / "lake", metadata=f"postgresql://me@127.0.0.1:{free_port()}/x", data_path="data")
    for read_only in (True, False):
        with pytest.raises(PairmillError, match=r"Postgres cannot be reached. Check `metadata` in lake.yaml"):
            create_or_open(place, read_only)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metadata: postgres://me:secret@h/x", "take the password out of `metadata` and set PGPASSWORD"),
        ("metadata: POSTGRESQL://me:secret@h/x", "take the password out"),
        ("metadata: postgres://me:sec/secret@h/x", "take the password out"),
        ("metadata: postgres://me%3Asecret@h/x", "take the password out"),
        ("metadata: postgresql+psycopg://me:secret@h/x", "take the password out"),
        ("metadata: postgresql://h/x?pass%77ord=secret", "take the password out"),
        ("metadata: host=h user=me password = secret", "take the password out"),
        ("metadata: host=h user=me", "is neither a SQLite file nor a postgresql:// URL"),
        ("metadata: postgresql:me:secret@h", "is neither a SQLite file nor a postgresql:// URL"),
        ("metadata: postgresql://me:secret@h/x: 3", r"cannot be read as YAML \(line 1"),
        ("metadata: mysql://h/x", "is neither a SQLite file nor a postgresql:// URL"),
        ("datapath: x", "may hold only the texts `metadata` and `data_path`"),
        ("data_path: [", "cannot be read as YAML"),
        ("data_path: 3", "may hold only the texts"),
    ],
)
def test_a_lake_yaml_that_is_wrong_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lake.yaml").write_text(text)
    with pytest.raises(PairmillError, match=message) as caught:
        locate(tmp_path / "lake.yaml")
    assert "secret" not in str(caught.value)


def test_a_lake_yaml_speaks_of_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_yaml(tmp_path / "lake", metadata="meta/m.sqlite", data_path="../store")
    monkeypatch.chdir(tmp_path)
    location = locate("lake/lake.yaml")
    assert (location.metadata, location.data_path) == (
        str(tmp_path / "lake/meta/m.sqlite"),
        str(tmp_path / "store") + "/",
    )
    with pytest.raises(PairmillError, match=r"write a lake.yaml"):
        locate("s3://bucket/lake")
    with pytest.raises(PairmillError, match=r"^lake 'postgresql://…'"):
        locate("postgresql://me:secret@h/x")
    with pytest.raises(PairmillError, match=r"no such file"):
        locate("nothing/lake.yaml")


FULL = """
import os, sys
from pairmill.catalog.write import lease
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.partitions import partition
place = sys.argv[1]
with create_or_open(place) as lake, lease.writing(lake, "run", "test") as writer:
    writer.commit([partition(lake, "p", ["a"])])
    filler = open(os.path.join(place, "filler"), "wb", buffering=0)
    try:
        while True:
            filler.write(bytes(4096))
    except OSError:
        pass
    try:
        for number in range(100):
            lake.execute("INSERT INTO bans SELECT repeat('x', 1000), '', now() FROM range(100)")
        print("no error")
    except PairmillError as error:
        print(error)
    filler.close()
    os.remove(os.path.join(place, "filler"))
    assert writer.commit([partition(lake, "q", ["b"])]) == 1
with create_or_open(place) as lake:
    print(lake.query("SELECT sha256 FROM image_hash ORDER BY ALL"), lake.query("SELECT count(*) FROM bans"))
"""


def test_a_full_disk_is_told_and_the_lake_goes_on_when_there_is_room(tmp_path: Path) -> None:
    script = tmp_path / "full.py"
    script.write_text(FULL)
    (tmp_path / "disk").mkdir()
    done = _mounted(f"-t tmpfs -o size=2m none {tmp_path}/disk", f"{script} {tmp_path}/disk")
    told, rows = done.stdout.splitlines()
    assert "its disk is full, or fails. Free some space and run again: what was committed is kept" in told
    assert rows == "[('a',), ('b',)] [(0,)]", done.stderr


def _mounted(mount: str, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of Python with a file system mounted, or skip the test where that is not allowed."""
    isolated = ["unshare", "--mount", "--map-root-user"]
    if shutil.which("unshare") is None or subprocess.run([*isolated, "true"], capture_output=True).returncode:
        pytest.skip("no disk can be mounted here")
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    line = f"mount {mount} && exec {sys.executable} {command}"
    done = subprocess.run([*isolated, "sh", "-c", line], capture_output=True, text=True, env=environment)
    if "mount:" in done.stderr:
        pytest.skip("no disk can be mounted here")
    return done


@pytest.mark.slow
def test_a_lake_on_a_read_only_disk_is_exported_and_a_line_says_that_no_takedown_will_name_the_export(tmp_path: Path):
    lake, to = tmp_path / "lake", tmp_path / "out"
    published(lake)
    done = _mounted(f"--bind -o ro {lake} {lake}", f"-m pairmill export small --to {to} --format texts --lake {lake}")
    assert done.returncode == 0, done.stderr
    assert "note: the lake is open for reading only, so this export is not recorded in it" in done.stdout
    assert sorted(path.suffix for path in to.glob("small-*")) == [".parquet"]
