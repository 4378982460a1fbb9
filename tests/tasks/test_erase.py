"""After some rows are erased, queries still find all others."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.upkeep.stale_statistics import refresh_statistics
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.tasks.upkeep.erase import erase

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
