"""Confine a user's SQL to reading the lake: no other file is read, no file is written, no host is contacted.

DuckDB's own limits apply to its file functions, but not to those of its extensions (`sqlite_scan` opens any file,
`postgres_scan` any server, DuckLake's `ducklake_cleanup_old_files` deletes), and a readable folder is also writable. So
a statement must also be a SELECT, and each table function in it must be one of those that only read.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.macros import MACROS
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
        *MACROS,
        "pictures_of_words",  # of pairmill.flows.api.words_in_sql
    ]
)
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)
_CHANGE = re.compile(r"\s*(DELETE|UPDATE|INSERT|MERGE|TRUNCATE|ALTER|DROP)\b", re.IGNORECASE)
REMEDY = "--allow-files lets a statement read and write any file that you may."


def confine(lake: Lake) -> None:
    """Restrict a read-only lake's DuckDB to the lake's data, irrevocably. Spilling is not affected."""
    lake.execute(f"SET allowed_directories = [{quoted(lake.data_path)}]")
    lake.execute("SET enable_external_access = false")
    lake.execute("SET lock_configuration = true")


def check_reads_only(lake: Lake, sql: str) -> None:
    """Raise BadQuery unless ``sql`` contains only SELECTs (or EXPLAIN of one) of tables and reading functions.

    Syntax errors pass: DuckDB reports them when the statement runs.
    """
    tree = _parsed(lake, sql)
    # not a SELECT; of other statements, only EXPLAIN contains a SELECT
    if tree["error"] and tree["error_type"] == "not implemented":
        tree = _parsed(lake, _EXPLAIN.sub("", sql, count=1))
        if tree["error"]:
            reads = "only a SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN of one) is run here"
            if _CHANGE.match(sql):
                raise BadQuery(f"{reads}; the lake is opened for reading, and no option lets SQL change it.")
            raise BadQuery(f"{reads}. {REMEDY}")
    for name in _table_functions(tree.get("statements", [])):
        if name not in READING and not name.startswith("duckdb_"):
            raise BadQuery(f"{name}() may do more than read this lake. {REMEDY}")


def _parsed(lake: Lake, sql: str) -> dict[str, Any]:
    """Return DuckDB's parse tree of a statement. Raise BadQuery if it is nested too deeply."""
    try:
        return json.loads(lake.query("SELECT json_serialize_sql(?::VARCHAR)", [sql])[0][0])
    except RecursionError:
        raise BadQuery("the statement is nested too deep; write it with fewer parentheses.") from None


def _table_functions(root: Any) -> Iterator[str]:
    """Yield the names of all table functions in a tree, without recursion, because a statement may be nested deeply."""
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == "TABLE_FUNCTION":
                yield str(value["function"].get("function_name", "")).lower()
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
