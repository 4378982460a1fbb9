"""Refuse SQL that does more than read the lake's own tables: other files, other tables, writes, network.

DuckDB's own limits apply to its file functions, but not to those of its extensions (`sqlite_scan` opens any file,
`postgres_scan` any server, DuckLake's `ducklake_cleanup_old_files` deletes), and a readable folder is also writable. So
a statement must also be a SELECT, and each table function in it must be one of those that only read.

The database of the lake's metadata is attached too (`__ducklake_metadata_lake`); on Postgres it shows all that the
role may read there. So each table must be the lake's own, by name, and the functions that list tables list the lake's.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from pairmill.catalog.lake.comments import MACROS
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.predicate import tree_nodes
from pairmill.catalog.terms.error import BadQuery, LeavesLake, did_you_mean

READING = frozenset([
    "range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "summary", "glob",
    "read_text", "read_blob", "read_parquet", "parquet_scan", "parquet_metadata", "parquet_schema",
    "parquet_file_metadata", "parquet_kv_metadata", "read_csv", "read_csv_auto", "read_json", "read_json_auto",
    "read_ndjson", "pragma_version", "icu_calendar_names", "pg_timezone_names", "ducklake_snapshots",
    "ducklake_table_info", "ducklake_table_insertions", "ducklake_table_deletions", "ducklake_table_changes",
    "ducklake_list_files", "ducklake_current_snapshot", "ducklake_last_committed_snapshot", "ducklake_options",
    *MACROS, "pictures_of_words",  # of pairmill.flows.api.picture_words
    "duckdb_functions", "duckdb_types", "duckdb_keywords", "duckdb_settings", "duckdb_extensions", "duckdb_memory",
])  # fmt: skip
# Functions that list the tables of all attached databases; temporary macros of the same names list the lake's.
LISTING = frozenset(["duckdb_tables", "duckdb_columns", "duckdb_views"])
# Each name of a view of DuckDB begins with one of these; its views list the tables of all attached databases.
SYSTEM = ("duckdb_", "pg_", "sqlite_", "pragma_")
DECISIONS = "sentence_decisions"  # the view that `sql_answer.provide` creates
_EXPLAIN = re.compile(r"\s*EXPLAIN\s+(?:ANALYZE\s+)?", re.IGNORECASE)
_TABLES = '"tables"'  # how the tree names SHOW TABLES
_CHANGE = re.compile(r"\s*(DELETE|UPDATE|INSERT|MERGE|TRUNCATE|ALTER|DROP)\b", re.IGNORECASE)


def confine(lake: Lake) -> None:
    """Restrict a read-only lake's DuckDB to the lake's data, irrevocably. Spilling is not affected."""
    lake.execute(f"SET allowed_directories = [{quoted(lake.data_path)}]")
    lake.execute("SET enable_external_access = false")
    lake.execute("SET lock_configuration = true")


def check_reads_only(lake: Lake, sql: str) -> dict[str, Any]:
    """Raise BadQuery unless ``sql`` contains only SELECTs (or EXPLAIN of one) with functions that only read.

    Returns:
        DuckDB's parse tree. Syntax errors pass: DuckDB reports them when the statement runs.
    """
    tree = _parse(lake, sql)
    # not a SELECT; of other statements, only EXPLAIN contains a SELECT
    if tree["error"] and tree["error_type"] == "not implemented":
        tree = _parse(lake, _EXPLAIN.sub("", sql, count=1))
        if tree["error"]:
            reads = "only a SELECT (or DESCRIBE, SHOW, SUMMARIZE, EXPLAIN of one) is run here"
            if _CHANGE.match(sql):
                raise BadQuery(f"{reads}; the lake is opened for reading, and no option lets SQL change it.")
            raise LeavesLake(reads)
    for name, _ in _table_functions(tree):
        if name not in READING | LISTING:
            raise LeavesLake(f"{name}() may do more than read this lake")
    return tree


def check_lake_only(lake: Lake, tree: dict[str, Any]) -> None:
    """Raise BadQuery unless each table that a statement names is the lake's, its own CTE, or a file.

    `confine` confines files. Functions of LISTING that the statement names are replaced by temporary macros.

    Args:
        lake: The lake that the statement reads.
        tree: The statement's parse tree, as of `check_reads_only`.
    """
    own = {name.lower() for name in (*lake.tables, *lake.views, DECISIONS)}
    ctes = {str(each["key"]).lower() for node in tree_nodes(tree) for each in _ctes(node)}
    ctes = {name for name in ctes if not name.startswith(SYSTEM)}
    for node in tree_nodes(tree):
        kind = node.get("type")
        if kind == "BASE_TABLE" and not _is_own(node, own, ctes):
            parts = (node[part] for part in ("catalog_name", "schema_name", "table_name"))
            name = ".".join(part for part in parts if part)
            hint = did_you_mean(name.lower(), own) or "SHOW TABLES lists its tables."
            raise BadQuery(f"'{name}' is no table of this lake; {hint}")
        if kind == "SHOW_REF" and node["show_type"] not in ("DESCRIBE", "SUMMARY") and node["table_name"] != _TABLES:
            raise BadQuery("this SHOW lists more than this lake; SHOW TABLES lists its tables.")
    for name, schema in _table_functions(tree):
        if schema:
            raise BadQuery(f"write {name}() without the name of a schema.")
        if name in LISTING:
            lists = f"SELECT * FROM system.main.{name}() WHERE database_name = 'lake'"
            lake.execute(f"CREATE OR REPLACE TEMP MACRO {name}() AS TABLE {lists}")


def _is_own(node: dict[str, Any], own: set[str], ctes: set[str]) -> bool:
    """Return whether a table's node names a table or view of the lake, a CTE, or a file."""
    catalog, schema, name = (str(node[part]).lower() for part in ("catalog_name", "schema_name", "table_name"))
    if not catalog and not schema:  # DuckDB looks in the lake and in its own views, and then for a file
        return name in own or name in ctes or "." in name or "/" in name
    return name in own and (catalog, schema) in (("lake", "main"), ("", "main"), ("", "lake"))


def _ctes(node: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of a node's WITH clause."""
    found = node.get("cte_map")
    return found["map"] if isinstance(found, dict) else []


def _parse(lake: Lake, sql: str) -> dict[str, Any]:
    """Return DuckDB's parse tree of a statement. Raise BadQuery if it is nested too deeply."""
    try:
        return json.loads(lake.query("SELECT json_serialize_sql(?::VARCHAR)", [sql])[0][0])
    except RecursionError:
        raise BadQuery("the statement is nested too deep; write it with fewer parentheses.") from None


def _table_functions(tree: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each table function in a tree, and the catalog and schema that are written before it."""
    for node in tree_nodes(tree):
        if node.get("type") == "TABLE_FUNCTION":
            called = node["function"]
            schema = f"{called.get('catalog') or ''}{called.get('schema') or ''}"
            yield str(called.get("function_name", "")).lower(), schema
