"""Recompute the smallest and largest texts that DuckLake keeps of each column: they outlive the rows that had them."""

from pairmill.catalog.write.lease import Writer

_FILES = (
    "SELECT table_id, column_id, min(s.min_value) AS low, max(s.max_value) AS high FROM ducklake_file_column_stats s "
    "JOIN ducklake_data_file f USING (data_file_id, table_id) WHERE f.end_snapshot IS NULL GROUP BY table_id, column_id"
)
_TEXTS = "SELECT table_id, column_id FROM ducklake_column WHERE end_snapshot IS NULL AND column_type = 'varchar'"


def refresh_statistics(writer: Writer) -> None:
    """Set the statistics of every text column to those of its files. Raises LeaseLost.

    DuckLake only widens them. Inlined rows must have been flushed. Numbers stay: texts compare as they are stored.
    """
    metadata = writer.lake.metadata

    def body() -> None:
        writer.check()
        stats = "ducklake_table_column_stats"
        mine = f"f.table_id = {stats}.table_id AND f.column_id = {stats}.column_id"
        metadata.write(
            f"UPDATE {stats} SET min_value = (SELECT low FROM ({_FILES}) f WHERE {mine}), "
            f"max_value = (SELECT high FROM ({_FILES}) f WHERE {mine}) WHERE (table_id, column_id) IN ({_TEXTS})"
        )

    metadata.retrying(body)
