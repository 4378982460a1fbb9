"""After some rows are erased, queries still find all others, and no file that a killed run left is on disk."""

from dataclasses import astuple
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake import lease_row
from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.upkeep.vacuum import refresh_statistics
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.sweep import sweep
from pairmill.tasks.upkeep.removal import erase
from tests.worlds.shared import opened_new

# Of each type of a column: values, and a condition that the smallest one meets.
VALUES = {
    "width": ([10, 50, 90], 40, "< 20"),
    "n_bytes": ([10, 50, 90], 40, "< 20"),
    "alt_text": (["a", "b", "c"], "k", "< 'b'"),
}


def commit(lake: Lake, writer: Writer, name: str, rows: list[dict]) -> None:
    """Commit a partition of `images`."""
    path = f"{lake.staging('images', writer.run_id)}/{name}.parquet"
    of_shard = [{"image_id": f"{name}{n}", "shard": name, "commit": 1} | row for n, row in enumerate(rows)]
    pq.write_table(pa.Table.from_pylist(of_shard, arrow_schema("images")), path)
    writer.commit([Manifest("images", name, name, "", len(rows), 1, 0.1, path, 1, "run")])


@pytest.mark.parametrize("is_late", [False, True])
def test_a_row_is_found_after_others_of_its_file_were_erased_and_a_run_added_some(
    tmp_path: Path, is_late: bool
) -> None:
    before = [{column: values[n] for column, (values, _, _) in VALUES.items()} for n in range(3)]
    with create_or_open(tmp_path) as lake, lease.writing(lake, "run", "erase") as writer:
        commit(lake, writer, "nothing", [{column: None for column in VALUES}] * 2)
        commit(lake, writer, "some", before)
        lake.execute("DELETE FROM images WHERE image_id = 'some1'")
        if is_late:  # as removals of an older Pairmill did: it loses the bounds of columns that a file has only NULL in
            lake.execute("CALL ducklake_rewrite_data_files('lake', 'images', delete_threshold => 0)")
        else:
            assert erase(writer).rewritten == 1
    with create_or_open(tmp_path) as lake, lease.writing(lake, "later", "curate") as writer:
        commit(lake, writer, "more", [{column: value for column, (_, value, _) in VALUES.items()}])
        if is_late:
            refresh_statistics(writer)
    with create_or_open(tmp_path, read_only=True) as lake:
        for column, (_, _, condition) in VALUES.items():
            found = lake.query(f"SELECT count(*) FROM images WHERE {column} {condition}")
            assert found == [(1,)], column
        assert lake.query("SELECT count(*) FROM images") == [(5,)]


@pytest.mark.parametrize("host", ["this", "far"])
def test_files_of_a_killed_run_go_at_once_unless_it_may_go_on_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 0.2)
    with opened_new(tmp_path / "lake") as lake:
        dead = astuple(lease_row.Holder("t", "there:1", "far", 1, 0.0, "killed", "curate", "2026", "2026"))
        if host == "this":
            dead = (*dead[:2], host_since_boot(), *dead[3:])  # its process 1 began at another time
        lake.metadata.write(f"INSERT INTO pairmill_lease VALUES (1{', ?' * len(dead)})", dead)
        folder = Path(lake.staging("payloads", "killed"))
        left = [folder / "half.parquet", folder / "half", folder.parent / "ducklake-half.parquet"]
        for path in left:
            path.write_bytes(b"of a picture")
        with lease.writing(lake, "removal", "takedown") as writer:
            erased = erase(writer)
        others = ("files of the last day that run killed on there:1 may still write",) if host == "far" else ()
        assert erased.others == others and [path for path in left if path.exists()] == (left if others else [])
        with lease.writing(lake, "later", "maintain") as writer:
            sweep(writer, older_than_seconds=0)
            assert not erase(writer).others and not any(path.exists() for path in left)
