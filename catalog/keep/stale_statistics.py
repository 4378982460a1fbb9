"""Recompute the smallest and largest texts that DuckLake keeps of each column: they outlive the rows that had them.

DuckDB leaves out what lies beyond these bounds when it plans a query, so they must never be too narrow. Where a bound
is not known for certain it becomes NULL, which DuckLake reads as unknown and does not set again.
"""

from pairmill.catalog.lake.schema import BOOKKEEPING
from pairmill.catalog.write.lease import Writer

# A file without bounds that has values makes both bounds unknown.
_IS_UNKNOWN = "bool_or(s.min_value IS NULL AND f.record_count > coalesce(s.null_count, 0))"
_BOUNDS = (
    f"SELECT s.table_id, s.column_id, CASE WHEN NOT {_IS_UNKNOWN} THEN min(s.min_value) END AS low, "
    f"CASE WHEN NOT {_IS_UNKNOWN} THEN max(s.max_value) END AS high FROM ducklake_file_column_stats s "
    "JOIN ducklake_data_file f USING (data_file_id, table_id) WHERE f.end_snapshot IS NULL GROUP BY ALL"
)
# Rows of these are in the metadata database too, outside of files.
_INLINED = ", ".join(f"'{table}'" for table in BOOKKEEPING)
_TEXTS = (
    f"SELECT DISTINCT c.table_id, c.column_id, t.table_name IN ({_INLINED}) AS is_inlined FROM ducklake_column c "
    "JOIN ducklake_table t USING (table_id) WHERE c.end_snapshot IS NULL AND t.end_snapshot IS NULL "
    "AND c.column_type = 'varchar'"
)


def refresh_statistics(writer: Writer) -> None:
    """Set the bounds of every text column to those of its files; of tables with inlined rows, to unknown.

    DuckLake only widens them. Numbers stay. Raises LeaseLost.
    """
    metadata = writer.lake.metadata

    def body() -> None:
        writer.check()
        known = "CASE WHEN NOT is_inlined THEN"
        texts = f"({_TEXTS}) c LEFT JOIN ({_BOUNDS}) b USING (table_id, column_id)"
        for key in metadata.read(f"SELECT {known} low END, {known} high END, c.table_id, c.column_id FROM {texts}"):
            metadata.write(
                "UPDATE ducklake_table_column_stats SET min_value = ?, max_value = ? "
                "WHERE table_id = ? AND column_id = ?",
                key,
            )

    metadata.retrying(body)
