"""Run a user's own SQL statement and yield its rows one by one, because a result may be larger than memory.

The SQL macros of `comments.py` and the view `sentence_decisions` are created for a statement that names them.

`confine` refuses SQL that does more than read the lake's own tables: other files, other tables, writes, network.
DuckDB's own limits apply to its file functions, but not to those of its extensions (`sqlite_scan` opens any file,
`postgres_scan` any server, DuckLake's `ducklake_cleanup_old_files` deletes), and a readable folder is also writable. So
a statement must also be a SELECT, and each table function in it must be one of those that only read.

The database of the lake's metadata is attached too (`__ducklake_metadata_lake`); on Postgres it shows all that the role
may read there. So each table must be the lake's own, by name, and the functions that list tables list the lake's.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import duckdb

from pairmill.catalog.lake.busy_retry import one_line, retry_while_busy, translate_error
from pairmill.catalog.lake.comments import MACROS
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.predicate import tree_nodes
from pairmill.catalog.terms.error import BadQuery, LeavesLake, PairmillError, did_you_mean

# DuckDB's messages when a statement hits the confinement: for a file or an address, and for a setting or a function of
# an extension that is not loaded (`current_setting('s3_region')`).
_REFUSED = re.compile(r"disabled (by|through) configuration")
_ABSENT = re.compile(r"it exists in the (\w+) extension")
Relation = duckdb.DuckDBPyRelation
Result = TypeVar("Result", duckdb.DuckDBPyRelation, duckdb.DuckDBPyConnection)
LOCKED = "database is locked"  # while another process opens or closes the lake; DuckDB waits 5 s
_EXTENSIONS = ("LOAD", "UPDATE_EXTENSIONS")  # DuckDB parses INSTALL as LOAD too
DECISIONS = "sentence_decisions"  # the view that `sql_answer.provide` creates
_NAMED = re.compile(rf"\b({'|'.join([*MACROS, DECISIONS])})\b", re.IGNORECASE)
_NOTHING = """SELECT '' AS dataset, 0::INTEGER AS version, '' AS item_id, '' AS kind, '' AS dropped_by, '' AS value,
    '' AS text WHERE false"""


def answer_confined(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    """Run ``sql`` like `answer`, but confined to reading this lake; the lake stays confined afterwards.

    Raises BadQuery as `answer` does, and if the statement is no SELECT or reads a file or a table outside the lake.
    """
    check_lake_only(lake, check_reads_only(lake, sql))
    provide(lake, sql)
    confine(lake)
    return _answer(lake, sql)


def answer(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    """Run ``sql`` and return its column names ([] for a statement without a result) and an iterator over its rows.

    Raises BadQuery for an empty statement or one that DuckDB refuses, PairmillError if the lake cannot be read.
    """
    provide(lake, sql)
    return _answer(lake, sql)


def relation(lake: Lake, sql: str) -> Relation:
    """Return the result of a SELECT as a DuckDB relation, which runs when its rows are fetched.

    It may read files beside the lake (``FROM 'mine.parquet'``), as a Python user can anyway. Raises BadQuery if it is
    no SELECT or DuckDB refuses it, PairmillError if the lake cannot be read.
    """
    check_reads_only(lake, sql)
    provide(lake, sql)
    return _start(lake, sql, lake.connection.sql)


def _answer(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    _refuse_extensions(lake, sql)
    cursor = _start(lake, sql, lake.connection.execute)
    return [column[0] for column in cursor.description or ()], _rows(lake, cursor)


def _start(lake: Lake, sql: str, run: Callable[[str], Result | None]) -> Result:
    """Return the result of ``run`` on a statement; wait briefly while the catalog is locked."""
    lake.check_tables_of(sql)

    def body() -> Result | None:
        try:
            return run(sql)
        except duckdb.Error as error:
            raise error if LOCKED in str(error) else _as_user_error(error, lake) from error

    found = retry_while_busy(body, lake.uri, is_inside=False, doublings=1)
    if found is None:  # only white space or a comment
        raise BadQuery('the statement is empty; write one, such as "SELECT count(*) FROM images".')
    return found


def _refuse_extensions(lake: Lake, sql: str) -> None:
    """Raise BadQuery for LOAD and INSTALL: an extension is a program that runs with all of the user's rights."""
    try:
        statements = lake.connection.extract_statements(sql)
    except duckdb.Error:  # DuckDB reports the error when the statement runs
        return
    if any(statement.type.name in _EXTENSIONS for statement in statements):
        raise BadQuery("LOAD and INSTALL are refused: no statement brings programs into this process.")


def _rows(lake: Lake, cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple]:
    """Yield the rows of a result, in chunks of 2,048; DuckDB's errors become user errors."""
    try:
        while chunk := cursor.fetchmany(2048):
            yield from chunk
    except duckdb.Error as error:
        raise _as_user_error(error, lake) from error


def _as_user_error(error: duckdb.Error, lake: Lake) -> Exception:
    """Convert DuckDB's error to a user error: with a remedy if one is known, else BadQuery."""
    said = one_line(error)
    if _REFUSED.search(said):
        return LeavesLake(f"refused: {said}")
    if absent := _ABSENT.search(said):
        return BadQuery(f"refused: it needs DuckDB's extension '{absent[1]}', which is not loaded for this lake.")
    error_with_remedy = translate_error(error, lake.uri)
    return error_with_remedy if isinstance(error_with_remedy, PairmillError) else BadQuery(said)


def provide(lake: Lake, sql: str) -> None:
    """Create the macros and the view that statement ``sql`` names, as temporary ones: an older lake may store others.

    Verifies the files of the tables that a macro reads, which the statement does not name.
    """
    named = {name.lower() for name in _NAMED.findall(sql)}
    if DECISIONS in named:
        versions = datasets.published(lake)
        lake.execute(f"CREATE OR REPLACE TEMP VIEW {DECISIONS} AS {sentence_decisions(lake, versions)}")
        named.remove(DECISIONS)
    for name, (definition, tables) in MACROS.items() if named else ():
        lake.execute(f"CREATE OR REPLACE TEMP MACRO {definition}")
        for table in tables if name in named else ():
            lake.check_files(table)


def sentence_decisions(lake: Lake, versions: Sequence[Dataset]) -> str:
    """Return SQL for the decisions on sentences: the columns of ``decisions`` and the text, per version and sentence.

    No table stores these decisions: they come from rules and scores. ``dropped_by`` is '' for a sentence that may be
    assigned, the first rule that it fails, or 'duplicate' with the kept sentence's id as ``value``. A filter on dataset
    and version leaves the other versions unread. Raises PairmillError if a version's recipe needs a missing package.
    """
    from pairmill.catalog.pending.eligible import AFTER_ALL, sentence_rows  # reads recipes, 0.16 CPU s
    from pairmill.catalog.queries.figures.report import plan_of

    parts = []
    for version in versions:
        plan = plan_of(lake, version)
        rows = sentence_rows(plan, AFTER_ALL, version.commit)
        newest = f"scorer = {quoted(plan.scorer('sentence_groups'))} AND commit <= {version.commit}"
        groups = f"""SELECT content, group_id FROM sentence_groups WHERE {newest} AND commit =
            (SELECT max(commit) FROM sentence_groups WHERE {newest})"""
        # The first passing member of a group of near copies stands for the others.
        first = "min(content) FILTER (dropped_by = '') OVER (PARTITION BY coalesce(group_id, content))"
        copy = "dropped_by = '' AND keeper <> content"
        parts.append(f"""SELECT {quoted(version.name)} AS dataset, {version.version}::INTEGER AS version,
            content AS item_id, 'sentence' AS kind, if({copy}, 'duplicate', dropped_by) AS dropped_by,
            if({copy}, keeper, dropped_value) AS value, text FROM (SELECT *, {first} AS keeper FROM ({rows})
            LEFT JOIN ({groups}) USING (content))""")
    return " UNION ALL ".join(parts or [_NOTHING])


READING = frozenset([
    "range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree", "summary", "glob",
    "read_text", "read_blob", "read_parquet", "parquet_scan", "parquet_metadata", "parquet_schema",
    "parquet_file_metadata", "parquet_kv_metadata", "read_csv", "read_csv_auto", "read_json", "read_json_auto",
    "read_ndjson", "pragma_version", "icu_calendar_names", "pg_timezone_names", "ducklake_snapshots",
    "ducklake_table_info", "ducklake_table_insertions", "ducklake_table_deletions", "ducklake_table_changes",
    "ducklake_list_files", "ducklake_current_snapshot", "ducklake_last_committed_snapshot", "ducklake_options",
    *MACROS,
    "duckdb_functions", "duckdb_types", "duckdb_keywords", "duckdb_settings", "duckdb_extensions", "duckdb_memory",
])  # fmt: skip
# Functions that list the tables of all attached databases; temporary macros of the same names list the lake's.
LISTING = frozenset(["duckdb_tables", "duckdb_columns", "duckdb_views"])
# Each name of a view of DuckDB begins with one of these; its views list the tables of all attached databases.
SYSTEM = ("duckdb_", "pg_", "sqlite_", "pragma_")
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

    Returns DuckDB's parse tree. Syntax errors pass: DuckDB reports them when the statement runs.
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

    ``tree`` is the statement's parse tree, as of `check_reads_only`; `confine` confines files. Functions of LISTING
    that the statement names are replaced by temporary macros.
    """
    own = {name.lower() for name in (*lake.tables, *lake.views, DECISIONS)}
    withs = [found["map"] for node in tree_nodes(tree) if isinstance(found := node.get("cte_map"), dict)]
    ctes = {str(each["key"]).lower() for entries in withs for each in entries}
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
