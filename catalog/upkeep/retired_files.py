"""Remove data files from the catalog whose rows cannot be read any more, or count twice.

DuckLake deletes rows only by reading their file. When a DELETE covers a whole file, DuckLake ends the file's row in its
metadata with a new snapshot; this module makes the same changes without reading the file. A snapshot of the same moment
still names the file, so that it stays on disk until a maintenance after SNAPSHOT_SECONDS, or a removal of rows.
"""

from collections.abc import Sequence

from pairmill.catalog.write.lease import Writer

AT_ONCE = 1_000


def retire(writer: Writer, ids: Sequence[int]) -> None:
    """End these data files and their delete files in new snapshots, AT_ONCE files in each. Raises LeaseLost."""
    for first in range(0, len(ids), AT_ONCE):
        _retire(writer, ids[first : first + AT_ONCE])


def _retire(writer: Writer, ids: Sequence[int]) -> None:
    """End some data files in one snapshot. Does nothing for files that have ended.

    A second registration of a file is deleted instead: the end of a row has its file removed from disk some day.
    """
    metadata = writer.lake.metadata
    among = f"data_file_id IN ({', '.join(map(str, ids))}) AND end_snapshot IS NULL"
    again = (
        "SELECT f.data_file_id FROM ducklake_data_file f JOIN ducklake_data_file g ON g.table_id = f.table_id AND "
        "g.path = f.path AND g.data_file_id < f.data_file_id WHERE g.end_snapshot IS NULL AND f.end_snapshot IS NULL "
        f"AND f.data_file_id IN ({', '.join(map(str, ids))})"
    )

    def body() -> None:
        writer.check()  # reads the lease row in this transaction: a takeover meanwhile makes it conflict
        doubled = ", ".join(str(number) for (number,) in metadata.read(again))
        for table in ("ducklake_data_file", "ducklake_delete_file", "ducklake_file_column_stats") if doubled else ():
            metadata.write(f"DELETE FROM {table} WHERE data_file_id IN ({doubled})")
        tables = metadata.read(f"SELECT DISTINCT table_id FROM ducklake_data_file WHERE {among} ORDER BY table_id")
        if not tables:
            return
        newest = metadata.read("SELECT max(snapshot_id) FROM ducklake_snapshot")[0][0]
        gone = ",".join(f"deleted_from_table:{table}" for (table,) in tables)
        for number, changes in ((newest + 1, ""), (newest + 2, gone)):  # the first names the files for some days
            metadata.write(
                "INSERT INTO ducklake_snapshot (snapshot_id, snapshot_time, schema_version, next_catalog_id, "
                "next_file_id) SELECT snapshot_id + 1, now(), schema_version, next_catalog_id, next_file_id "
                f"FROM ducklake_snapshot WHERE snapshot_id = {number - 1}"
            )
            metadata.write(
                f"INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made) VALUES ({number}, '{changes}')"
            )
        for table in ("ducklake_data_file", "ducklake_delete_file"):
            metadata.write(f"UPDATE {table} SET end_snapshot = {newest + 2} WHERE {among}")

    metadata.retrying(body)
