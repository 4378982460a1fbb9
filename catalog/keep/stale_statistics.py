"""Recompute the smallest and largest texts that DuckLake keeps of each column: they outlive the rows that had them.

DuckDB leaves out what lies beyond these bounds when it plans a query, so they must never be too narrow. Where a bound
is not known for certain, it becomes one that no text exceeds. NULL would not do: DuckLake reads it as unknown, but sets
it to the bounds of the next rows that it inserts, and the older rows would be left out of queries.
"""

from pairmill.catalog.write.lease import Writer

LEAST, MOST = "", "\U0010ffff" * 2  # no text is smaller, and none that is made of characters is larger
# A file without bounds that has values makes both bounds unknown.
_IS_UNKNOWN = "bool_or(s.min_value IS NULL AND f.record_count > coalesce(s.null_count, 0))"
_BOUNDS = (
    f"SELECT s.table_id, s.column_id, CASE WHEN NOT {_IS_UNKNOWN} THEN min(s.min_value) END AS low, "
    f"CASE WHEN NOT {_IS_UNKNOWN} THEN max(s.max_value) END AS high FROM ducklake_file_column_stats s "
    "JOIN ducklake_data_file f USING (data_file_id, table_id) WHERE f.end_snapshot IS NULL GROUP BY ALL"
)
_TEXTS = (
    "SELECT DISTINCT c.table_id, c.column_id, c.table_id IN (SELECT table_id FROM ducklake_inlined_data_tables) AS "
    "is_inlined FROM ducklake_column c JOIN ducklake_table t USING (table_id) WHERE c.end_snapshot IS NULL "
    "AND t.end_snapshot IS NULL AND c.column_type = 'varchar'"
)
_CERTAIN, _KEY = "CASE WHEN NOT is_inlined THEN", "c.table_id, c.column_id"


def refresh_statistics(writer: Writer) -> None:
    """Set the bounds of every text column to those of its files, or to LEAST and MOST.

    The files do not tell for tables that may have inlined rows, which stand in the metadata database. Numbers stay.
    Raises LeaseLost.
    """
    metadata = writer.lake.metadata

    def body() -> None:
        writer.check()
        texts = f"({_TEXTS}) c LEFT JOIN ({_BOUNDS}) b USING (table_id, column_id)"
        for low, high, *key in metadata.read(f"SELECT {_CERTAIN} low END, {_CERTAIN} high END, {_KEY} FROM {texts}"):
            metadata.write(
                "UPDATE ducklake_table_column_stats SET min_value = ?, max_value = ? "
                "WHERE table_id = ? AND column_id = ?",
                (LEAST if low is None else low, MOST if high is None else high, *key),
            )

    metadata.retrying(body)
