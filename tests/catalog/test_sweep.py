import os
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.row_files import index_files, newest_paths, paths_by_shard
from pairmill.catalog.write import lease, rewritten
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.finished import state
from pairmill.catalog.write.lease import commit_stream
from pairmill.catalog.write.sweep import checkpoint, sweep
from tests.worlds.partitions import partition
from tests.worlds.shared import opened_new

DAY = 86_400


def make_older(path: str, seconds: float) -> None:
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def test_only_old_files_that_no_row_knows_are_removed(lake: Lake) -> None:
    with lease.writing(lake, "run", "sweep") as writer:
        known, orphan, young = (partition(lake, name, ["a"]) for name in ("known", "orphan", "young"))
        writer.commit([known])
        half = Path(orphan.path + ".part")
        half.write_bytes(b"half")
        for path in (known.path, orphan.path, str(half)):
            make_older(path, 2 * DAY)
        _, removed = sweep(writer)
        assert sorted(removed) == [orphan.path, str(half)]
        assert [Path(p.path).exists() for p in (known, orphan, young)] == [True, False, True]
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
        assert sweep(writer)[1] == []


def test_a_partition_done_twice_leaves_one_file_after_the_sweep(lake: Lake) -> None:
    with lease.writing(lake, "run", "sweep") as writer:
        first, again = partition(lake, "p", ["a"]), partition(lake, "p", ["a"], run_id="again")
        assert commit_stream(writer, [first, again]) == 1
        make_older(again.path, 2 * DAY)
        assert sweep(writer)[1] == [again.path]
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]


def test_the_files_of_a_shard_are_found_before_and_after_they_are_merged(lake: Lake) -> None:
    def found(*shards: str) -> dict[str, list[str]]:
        paths = paths_by_shard(lake, "image_hash", shards, "k")
        kept = {shard: [("shard", "==", shard)] for shard in shards}
        tables = {n: [pq.read_table(path, filters=kept[n], partitioning=None) for path in paths[n]] for n in shards}
        return {shard: [key for table in tables[shard] for key in table["sha256"].to_pylist()] for shard in shards}

    with lease.writing(lake, "run", "sweep") as writer:
        for name, keys in (("one", ["a", "b"]), ("two", ["c"])):
            writer.commit([partition(lake, name, keys)])
        apart = paths_by_shard(lake, "image_hash", ["one", "two"], "k")
        assert found("one", "two") == {"one": ["a", "b"], "two": ["c"]}
        assert [len(paths) for paths in apart.values()] == [1, 1] and apart["one"] != apart["two"]
        checkpoint(writer)
        writer.commit([replace(partition(lake, "two", ["d"], attempt="again"), partition_id="two again")])
        joined = paths_by_shard(lake, "image_hash", ["one", "two"], "k")
        assert found("one", "two", "none") == {"one": ["a", "b"], "two": ["c", "d"], "none": []}
        assert len(joined["one"]) == 1 and joined["one"] != apart["one"] and {*joined["one"]} < {*joined["two"]}


def test_old_snapshots_go_and_what_is_true_now_stays(lake: Lake) -> None:
    with lease.writing(lake, "run", "sweep") as writer:
        writer.commit([partition(lake, "p", ["a"])])
        assert sweep(writer)[0] == 0
        old = "now() - INTERVAL 8 DAY"
        lake.metadata.write(f"UPDATE ducklake_snapshot SET snapshot_time = ({old})::VARCHAR")
        lake.execute("INSERT INTO bans VALUES ('x', 'y', now())")
        assert sweep(writer)[0] >= 3
        assert lake.query("SELECT sha256 FROM image_hash") == [("a",)]
        assert lake.query("SELECT partition_id FROM partitions") == [("p",)]


def test_a_checkpoint_leaves_one_file_a_table_of_many_small_ones(lake: Lake) -> None:
    with lease.writing(lake, "run", "sweep") as writer:
        for round_ in range(3):
            for number in range(4):
                writer.commit([partition(lake, f"p{round_}{number}", ["a"])])
            checkpoint(writer)
        assert len(lake.query("FROM ducklake_list_files('lake', 'partitions')")) == 1
        assert len(lake.query("FROM ducklake_list_files('lake', 'image_hash')")) == 1
        assert lake.query("SELECT count(*) FROM image_hash") == [(12,)]
        assert lake.query("SELECT count(DISTINCT partition_id) FROM partitions") == [(12,)]
        assert writer.commit([partition(lake, "p00", ["a"])]) == 0


@pytest.mark.parametrize(
    "at_once",
    [pytest.param(1, id="file by file"), pytest.param(rewritten.AT_ONCE, id="together", marks=pytest.mark.slow)],
)
def test_files_with_deleted_rows_are_written_anew_and_joined_and_nothing_changes(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(rewritten, "AT_ONCE", at_once)
    runs = (
        "INSERT INTO runs VALUES (?, 'curate', 'demo', 'running', now(), NULL, '')",
        "UPDATE runs SET state = 'done'",
    )
    with lease.writing(lake, "run", "sweep") as writer:
        for name in ("one", "two", "three"):
            writer.commit([partition(lake, name, [f"{name} {n}" for n in range(4)])])
            lake.execute("DELETE FROM image_hash WHERE sha256 = ?", (f"{name} 2",))
            lake.execute(runs[0], (name,))
            checkpoint(writer)
            lake.execute(runs[1])  # the row's file has a deleted row, and so it stays for good
        tables = ("image_hash", "runs", "partitions")
        before = {table: lake.query(f"FROM {table} ORDER BY rowid") for table in tables}
        known = state(lake)
        checkpoint(writer)
        assert state(lake) == known
        for table in tables:
            files = lake.query(f"SELECT data_file, delete_file FROM ducklake_list_files('lake', '{table}')")
            assert [deleted for _, deleted in files] == [None], table
            assert sorted(lake.query(f"FROM {table}")) == sorted(before[table])
        assert [key for (key,) in lake.query("SELECT sha256 FROM image_hash ORDER BY rowid")] == [
            f"{name} {n}" for name in ("one", "two", "three") for n in (0, 1, 3)
        ]
        lake.execute("INSERT INTO runs VALUES ('last', 'curate', 'demo', 'running', now(), NULL, '')")
        assert len(lake.query("FROM ducklake_list_files('lake', 'runs')")) == 1  # a few rows are still no file
        assert state(lake) == known
        lake.execute("INSERT INTO bans VALUES ('x', 'y', now())")
        assert state(lake) != known


def test_only_bounds_by_which_files_are_left_out_are_kept_and_queries_find_the_same(lake: Lake) -> None:
    bounds = (
        "SELECT column_name, count(*) FROM ducklake_file_column_stats JOIN ducklake_column USING (table_id, column_id) "
        "JOIN ducklake_table USING (table_id) WHERE table_name = 'image_hash' GROUP BY ALL ORDER BY ALL"
    )
    with lease.writing(lake, "run", "curate") as writer:
        for name in ("one", "two"):
            writer.commit([partition(lake, name, [f"{name} {n}" for n in range(4)])])
    assert lake.metadata.read(bounds) == [("scorer", 2), ("shard", 2)]
    with lease.writing(lake, "later", "curate") as writer:
        writer.commit([partition(lake, "three", ["three 0"])])
        once = dict.fromkeys(("commit", "flat_colours", "phash", "sha256"), 1)
        assert dict(lake.metadata.read(bounds)) == once | {"scorer": 3, "shard": 3}
        for condition, n in (("shard = 'two'", 4), ("sha256 = 'one 3'", 1), ("phash >= 2", 4), ("sha256 > 'three'", 5)):
            assert lake.query(f"SELECT count(*) FROM image_hash WHERE {condition}") == [(n,)], condition
    assert lake.metadata.read(bounds) == [("scorer", 3), ("shard", 3)]


def test_a_long_run_deletes_useless_bounds_before_it_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "THIN_EVERY", 4)
    rows = "SELECT count(*) FROM ducklake_file_column_stats JOIN ducklake_table USING (table_id) " \
           "WHERE table_name = 'image_hash'"  # fmt: skip
    with lease.writing(lake, "run", "curate") as writer:
        found = []
        for number in range(12):
            writer.commit([partition(lake, f"p{number}", ["a"])])
            found.append(lake.metadata.read(rows)[0][0])
    # Six columns a file; after four files, then after five, two a file are left.
    assert found == [6, 12, 18, 8, 14, 20, 26, 32, 18, 24, 30, 36]


@pytest.mark.slow
def test_small_files_that_workers_open_by_path_are_joined_by_scorer_and_found_by_their_rows(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def files(table: str) -> list[str]:
        return [lake.data_path + file.data_file for file in snapshot.files(lake.unchecked, (table,))]

    def store(table: str, n: int, scorer: str, rows: list[dict]) -> None:
        path = f"{lake.staging(table, 'run')}/{table}-{n}.parquet"
        own = {"shard": str(n), "scorer": scorer, "commit": n}
        schema = arrow_schema(table)
        columns = [{name: (own | row).get(name) for name in schema.names} for row in rows]
        pq.write_table(pa.Table.from_pylist(columns, schema), path)
        writer.commit([Manifest(table, f"{table}-{n}", str(n), scorer, len(rows), 1, 0.1, path, n, "run")])

    def read(paths: tuple[str, ...], column: str) -> list[list]:
        return [pq.read_table(path)[column].to_pylist() for path in paths]

    with lease.writing(lake, "run", "sweep") as writer:
        for n in range(4):
            picture = {"bytes": bytes(99), "length": 99}
            store("payloads", n, "", [{"sha256": f"{n}{k}"} | picture for k in range(2)])
            store("vector_index", n, "ab"[n % 2], [{"cluster": 9 * k + n, "index_vector": b"v"} for k in range(2)])
            store("sentence_groups", n, "g", [{"content": f"{n}", "group_id": "x"}])
        with monkeypatch.context() as patch:
            patch.setattr(rewritten, "JOINED", min(os.path.getsize(path) for path in files("payloads")))
            checkpoint(writer)
            assert len(files("payloads")) == 4
        known = state(lake)
        checkpoint(writer)
        assert state(lake) == known
        in_order = [(f"{n}{k}",) for n in range(4) for k in range(2)]
        assert lake.query("SELECT sha256 FROM payloads ORDER BY rowid") == in_order
        assert read(index_files(lake, "a").paths, "cluster") == [[0, 2, 9, 11]]
        assert read(index_files(lake, "b").paths, "cluster") == [[1, 3, 10, 12]]
        assert read(newest_paths(lake, "sentence_groups", "g"), "content") == [["3"]]
        assert len(files("sentence_groups")) == 2
        store("payloads", 4, "", [{"sha256": "40"}])
        found = paths_by_shard(lake, "payloads", ["1", "4", "none"])
        assert {shard: len(paths) for shard, paths in found.items()} == {"1": 1, "4": 1, "none": 0}
        assert found["1"] != found["4"]
        kept = files("vector_index")
        checkpoint(writer)
        assert len(files("payloads")) == 1 and files("vector_index") == kept
        lake.execute("DELETE FROM payloads WHERE sha256 = '20'")
        monkeypatch.setattr(rewritten, "AT_ONCE", 198)
        for table, paths in rewritten.with_deleted_rows(lake, ["payloads"]):
            rewritten.rewrite(writer, table, paths)
        portions = read(tuple(files("payloads")), "sha256")
        keys = sorted(key for portion in portions for key in portion)
        assert keys == ["00", "01", "10", "11", "21", "30", "31", "40"]
        assert max(map(len, portions)) <= 3 and len(portions) == 4  # of 198 bytes, and a reference


def test_a_lake_whose_newest_files_were_joined_can_be_moved(tmp_path: Path) -> None:
    with opened_new(tmp_path / "old") as lake, lease.writing(lake, "run", "sweep") as writer:
        for name in ("a", "b"):
            writer.commit([partition(lake, name, ["x"])])
        checkpoint(writer)
        lake.metadata.write("UPDATE ducklake_snapshot SET snapshot_time = (now() - INTERVAL 8 DAY)::VARCHAR")
        lake.execute("INSERT INTO bans VALUES ('x', 'y', now())")
        assert len(sweep(writer, older_than_seconds=-1000)[1]) >= 2
    (tmp_path / "old").rename(tmp_path / "new")
    with create_or_open(tmp_path / "new") as lake:
        assert lake.query("SELECT count(*) FROM image_hash") == [(2,)]
