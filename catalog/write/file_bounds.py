"""Delete the bounds of file columns by which no query leaves out files.

DuckLake keeps a row for each column of each data file: its smallest and largest value. For each column that a statement
compares with a constant, it reads all rows of all tables, 1.7 µs each on SQLite: 5,600 of them made 9 of the 12 CPU ms
of a statement on a small table, and each night adds some. Few columns have values that differ from file to file. For
the others a row says nothing, and a query without the row reads the same files. Rows of a file may be missing: files
that are older than a column have none for it either.
"""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.schema import BOOKKEEPING, LOOKED_UP

# Columns that have one value in a file of a worker, or neighbouring ones.
PRUNED_BY = ("shard", "scorer", "dataset", "version", "uri")
# No SQL reads this table's rows: workers open its files by their paths.
_NEVER_QUERIED = "vector_index"


def thin(lake: Lake) -> None:
    """Delete the column bounds of workers' files, except for PRUNED_BY, and all bounds of files of older snapshots.

    Reads all bounds: 5 ms for 3,000, 2 s for 1M. The rows, the snapshots and the bounds of whole tables stay as they
    are. Safe at any time; the holder of the lease does it after commits.
    """
    others = ", ".join(map(quoted, (*BOOKKEEPING, *LOOKED_UP)))
    columns = (
        "SELECT table_id, column_id FROM ducklake_column JOIN ducklake_table USING (table_id) "
        f"WHERE table_name NOT IN ({others}) "
        f"AND (table_name = '{_NEVER_QUERIED}' OR column_name NOT IN ({', '.join(map(quoted, PRUNED_BY))}))"
    )
    ended = "SELECT data_file_id FROM ducklake_data_file WHERE end_snapshot IS NOT NULL"
    useless = f"(table_id, column_id) IN ({columns}) OR data_file_id IN ({ended})"
    lake.metadata.write(f"DELETE FROM ducklake_file_column_stats WHERE {useless}")
