"""Run a user's own SQL statement and yield its rows one by one, because a result may be larger than memory.

The SQL macros of `comments.py` and the view `sentence_decisions` are created for a statement that names them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import duckdb

from pairmill.catalog.lake.busy_retry import one_line, retry_while_busy, translate_error
from pairmill.catalog.lake.comments import MACROS, definitions, nearest
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.sql.confined import DECISIONS, check_lake_only, check_reads_only, confine
from pairmill.catalog.terms.error import BadQuery, LeavesLake, PairmillError

# DuckDB's messages when a statement hits the confinement: for a file or an address, and for a setting or a function of
# an extension that is not loaded (`current_setting('s3_region')`).
_REFUSED = re.compile(r"disabled (by|through) configuration")
_ABSENT = re.compile(r"it exists in the (\w+) extension")
Relation = duckdb.DuckDBPyRelation
Result = TypeVar("Result", duckdb.DuckDBPyRelation, duckdb.DuckDBPyConnection)
LOCKED = "database is locked"  # while another process opens or closes the lake; DuckDB waits 5 s
_EXTENSIONS = ("LOAD", "UPDATE_EXTENSIONS")  # DuckDB parses INSTALL as LOAD too
_NAMED = re.compile(rf"\b({'|'.join([*MACROS, DECISIONS])})\b", re.IGNORECASE)
_NOTHING = (
    "SELECT '' AS dataset, 0::INTEGER AS version, '' AS item_id, '' AS kind, '' AS dropped_by, '' AS value, "
    "'' AS text WHERE false"
)


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

    Unlike `answer_confined` it may read files beside the lake (``FROM 'mine.parquet'``): a Python user can read them
    anyway. Raises BadQuery if the statement is not a SELECT, or DuckDB refuses it, and PairmillError if the lake cannot
    be read.
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
    """Create the macros and the view that statement ``sql`` names, as temporary ones of this connection.

    A macro that the lake stores is created too, because an older lake may store an older definition.

    Verifies the files of the tables that a macro reads, which the statement does not name.
    """
    named = {name.lower() for name in _NAMED.findall(sql)}
    if DECISIONS in named:
        versions = datasets.published(lake)
        lake.execute(f"CREATE OR REPLACE TEMP VIEW {DECISIONS} AS {sentence_decisions(lake, versions)}")
        named.remove(DECISIONS)
    for name, definition in definitions().items() if named else ():
        lake.execute(f"CREATE OR REPLACE TEMP MACRO {definition}")
        for table in MACROS[name] if name in named else ():
            lake.check_files(table)


def provide_pictures_of_words(lake: Lake, scorer: str, embed: Callable[[str], bytes]) -> None:
    """Create the macro ``pictures_of_words(words, n := 10)``: the pictures nearest to a text by vectors of ``scorer``.

    ``embed`` returns the vector of a text as the bytes that the lake stores.
    """
    lake.connection.create_function("vector_of_words", embed, ["VARCHAR"], "BLOB")  # pyright: ignore[reportArgumentType]
    provide(lake, "nearest_pictures vector_values")
    query = f"SELECT {quoted(scorer)} AS scorer, '' AS sha256, vector_of_words(words) AS image_vector"
    lake.execute(f"CREATE OR REPLACE TEMP MACRO pictures_of_words(words, n := 10) AS TABLE {nearest(query)}")


def sentence_decisions(lake: Lake, versions: Sequence[Dataset]) -> str:
    """Return SQL for the decisions on sentences: the columns of ``decisions`` and the text, per version and sentence.

    No table stores these decisions; they are computed from rules and scores. ``dropped_by`` is '' for a sentence that
    may be assigned, the first rule that it fails, or 'duplicate' with the kept sentence's id as ``value``. A filter on
    dataset and version leaves the other versions unread. Raises PairmillError if a version's recipe needs a package
    that is not installed.
    """
    from pairmill.catalog.pending.eligible import AFTER_ALL, sentence_rows  # reads recipes, 0.16 CPU s
    from pairmill.catalog.queries.figures.report import plan_of

    parts = []
    for version in versions:
        plan = plan_of(lake, version)
        rows = sentence_rows(plan, AFTER_ALL, version.commit)
        newest = f"scorer = {quoted(plan.scorer('sentence_groups'))} AND commit <= {version.commit}"
        groups = (
            f"SELECT content, group_id FROM sentence_groups WHERE {newest} AND commit = "
            f"(SELECT max(commit) FROM sentence_groups WHERE {newest})"
        )
        # The first passing member of a group of near copies stands for the others.
        first = "min(content) FILTER (dropped_by = '') OVER (PARTITION BY coalesce(group_id, content))"
        copy = "dropped_by = '' AND keeper <> content"
        parts.append(
            f"SELECT {quoted(version.name)} AS dataset, {version.version}::INTEGER AS version, content AS item_id, "
            f"'sentence' AS kind, if({copy}, 'duplicate', dropped_by) AS dropped_by, "
            f"if({copy}, keeper, dropped_value) AS value, text FROM (SELECT *, {first} AS keeper FROM ({rows}) "
            f"LEFT JOIN ({groups}) USING (content))"
        )
    return " UNION ALL ".join(parts or [_NOTHING])
