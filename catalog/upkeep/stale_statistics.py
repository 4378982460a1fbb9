"""Recompute the smallest and largest values that DuckLake keeps of each column: they outlive the rows that had them.

DuckDB leaves out what lies beyond these bounds when it plans a query, so they must never be too narrow. Where a bound
is not known for certain, it becomes one that no value exceeds. NULL would not do: DuckLake reads it as unknown, but
sets it to the bounds of the next rows that it inserts, and the older rows would be left out of queries. Removals of an
older Pairmill left such NULLs in columns of numbers, so these get the widest bounds.
"""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.forgotten_scores import STEP
from pairmill.catalog.write.lease import Writer

LEAST, MOST = "", "\U0010ffff" * 2  # no text is smaller, and none that is made of characters is larger
# The widest bounds of DuckLake's types of numbers and times.
_WIDEST = {
    "boolean": ("0", "1"),
    **{f"int{bits}": (str(-(2 ** (bits - 1))), str(2 ** (bits - 1) - 1)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": ("0", str(2**bits - 1)) for bits in (8, 16, 32, 64)},
    "float32": ("-inf", "inf"),
    "float64": ("-inf", "inf"),
    "timestamptz": ("-infinity", "infinity"),
}
# A file without bounds that has values makes both bounds unknown, and so does a file without a row of the column.
_IS_UNKNOWN = (
    "(count(*) < any_value(n.files) OR bool_or(s.min_value IS NULL AND f.record_count > coalesce(s.null_count, 0)))"
)
_FILES = "SELECT table_id, count(*) AS files FROM ducklake_data_file WHERE end_snapshot IS NULL GROUP BY table_id"
_BOUNDS = (
    f"SELECT s.table_id, s.column_id, CASE WHEN NOT {_IS_UNKNOWN} THEN min(s.min_value) END AS low, "
    f"CASE WHEN NOT {_IS_UNKNOWN} THEN max(s.max_value) END AS high FROM ducklake_file_column_stats s "
    f"JOIN ducklake_data_file f USING (data_file_id, table_id) JOIN ({_FILES}) n USING (table_id) "
    "WHERE f.end_snapshot IS NULL GROUP BY ALL"
)
_INLINED = "SELECT table_id FROM ducklake_inlined_data_tables"
_TEXTS = (
    f"SELECT DISTINCT c.table_id, c.column_id, c.table_id IN ({_INLINED}) AS is_inlined "
    "FROM ducklake_column c JOIN ducklake_table t USING (table_id) WHERE c.end_snapshot IS NULL "
    "AND t.end_snapshot IS NULL AND c.column_type = 'varchar'"
)
_CERTAIN, _KEY = "CASE WHEN NOT is_inlined THEN", "c.table_id, c.column_id"


def refresh_statistics(writer: Writer) -> None:
    """Recompute the bounds of text columns from those of their files; give columns of numbers their type's widest.

    A text column gets LEAST and MOST if its files do not tell: in tables that may have rows in the metadata database,
    and where `thin` has deleted what they told. In such tables known bounds of numbers stay: one of them is the
    schema version. Call this last: a connection of DuckLake keeps the bounds that it has read. Raises LeaseLost.
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
        for kind, bounds in _WIDEST.items():
            metadata.write(
                "UPDATE ducklake_table_column_stats SET min_value = ?, max_value = ? WHERE (table_id, column_id) IN "
                "(SELECT table_id, column_id FROM ducklake_column WHERE end_snapshot IS NULL AND column_type = ?) "
                f"AND (min_value IS NULL OR table_id NOT IN ({_INLINED}))",
                (*bounds, kind),
            )

    metadata.retrying(body)


def rows_were_erased(lake: Lake) -> bool:
    """Return whether a takedown ever removed rows, or a scorer's were forgotten."""
    return bool(lake.query("SELECT 1 FROM commits WHERE step = 'takedown' OR starts_with(step, ?) LIMIT 1", (STEP,)))
