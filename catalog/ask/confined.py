"""Confine a user's SQL to reading the lake: no other file is read, none is written, nothing is contacted.

DuckDB's own limits hold for its file functions and not for those of its extensions (`sqlite_scan` opens any file,
`postgres_scan` any server, DuckLake's `ducklake_cleanup_old_files` deletes), and a folder that may be read may be
written. So a statement must be a SELECT too, and each table function in it one of those that only read.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.terms.error import BadQuery

READING = frozenset(
    [
        "range",
        "generate_series",
        "unnest",
        "repeat",
        "repeat_row",
        "json_each",
        "json_tree",
        "summary",
        "glob",
        "read_text",
        "read_blob",
        "read_parquet",
        "parquet_scan",
        "parquet_metadata",
        "parquet_schema",
        "parquet_file_metadata",
        "parquet_kv_metadata",
        "read_csv",
        "read_csv_auto",
        "read_json",
        "read_json_auto",
        "read_ndjson",
        "pragma_table_info",
        "pragma_show",
        "pragma_version",
        "pragma_storage_info",
        "pragma_database_size",
        "icu_calendar_names",
        "pg_timezone_names",
        "ducklake_snapshots",
        "ducklake_table_info",
        "ducklake_table_insertions",
        "ducklake_table_deletions",
        "ducklake_table_changes",
        "ducklake_list_files",
        "ducklake_current_snapshot",
        "ducklake_last_committed_snapshot",
        "ducklake_options",
    ]
)
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)
REMEDY = "--allow-files lets a statement read and write any file that you may."


def confine(lake: Lake) -> None:
    """Leave a read-only lake's DuckDB its own data and nothing else, for good. What it spills is not concerned."""
    lake.execute(f"SET allowed_directories = [{quoted(lake.data_path)}]")
    lake.execute("SET enable_external_access = false")
    lake.execute("SET lock_configuration = true")


def check_reads_only(lake: Lake, sql: str) -> None:
    """Raise BadQuery unless ``sql`` holds nothing but SELECTs (or one explained) of tables and reading functions.

    What DuckDB cannot parse is left to it to refuse.
    """
    tree = _parsed(lake, sql)
    if tree["error"] and tree["error_type"] == "not implemented":  # no SELECT; of these only EXPLAIN holds one
        tree = _parsed(lake, _EXPLAIN.sub("", sql, count=1))
        if tree["error"]:
            raise BadQuery(f"only a SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN of one) is run here. {REMEDY}")
    for name in _table_functions(tree.get("statements", [])):
        if name not in READING and not name.startswith("duckdb_"):
            raise BadQuery(f"{name}() may do more than read this lake. {REMEDY}")


def _parsed(lake: Lake, sql: str) -> dict[str, Any]:
    try:
        return json.loads(lake.query("SELECT json_serialize_sql(?::VARCHAR)", [sql])[0][0])
    except RecursionError:
        raise BadQuery("the statement is nested too deep; write it with fewer parentheses.") from None


def _table_functions(root: Any) -> Iterator[str]:
    """Yield the names of table functions, wherever they stand, without recursion: a statement may be deep."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == "TABLE_FUNCTION":
                yield str(value["function"].get("function_name", "")).lower()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
