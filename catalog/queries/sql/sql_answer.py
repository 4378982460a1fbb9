"""Run a user's own SQL statement, and yield its rows one by one, because a result may be larger than memory."""

import re
from collections.abc import Iterator

import duckdb

from pairmill.catalog.lake.busy_retry import in_a_line, retry_while_busy, translated
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.sql.confined import REMEDY, check_lake_only, check_reads_only, confine
from pairmill.catalog.queries.sql.own_macros import provide
from pairmill.catalog.terms.error import BadQuery, PairmillError

# DuckDB's messages when a statement hits the confinement: for a file or an address, and for a setting or a function of
# an extension that is not loaded (`current_setting('s3_region')`).
_REFUSED = re.compile(r"disabled (by|through) configuration")
_ABSENT = re.compile(r"it exists in the (\w+) extension")
Relation = duckdb.DuckDBPyRelation
LOCKED = "database is locked"  # while another process opens or closes the lake; DuckDB waits 5 s
_EXTENSIONS = ("LOAD", "UPDATE_EXTENSIONS")  # DuckDB parses INSTALL as LOAD too


def answer_confined(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    """Run ``sql`` like `answer`, but confined to reading this lake; the lake stays confined afterwards.

    Raises:
        BadQuery: As for `answer`, or the statement is not a SELECT or reads a file or a table outside the lake.
    """
    check_lake_only(lake, check_reads_only(lake, sql))
    provide(lake, sql)
    confine(lake)
    return _answer(lake, sql)


def answer(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    """Run ``sql`` and return its column names ([] for a statement without a result) and an iterator over its rows.

    Raises:
        BadQuery: DuckDB refuses the statement, or there is none.
        PairmillError: The lake cannot be read.
    """
    provide(lake, sql)
    return _answer(lake, sql)


def _answer(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    _refuse_extensions(lake, sql)
    lake.check_tables_of(sql)
    cursor = retry_while_busy(lambda: _begun(lake, sql), lake.uri, is_inside=False, doublings=1)
    if cursor is None:  # only white space or a comment
        raise BadQuery('the statement is empty; write one, such as pairmill sql "SELECT count(*) FROM images".')
    return [column[0] for column in cursor.description or ()], _rows(lake, cursor)


def relation(lake: Lake, sql: str) -> Relation:
    """Return the result of a SELECT as a DuckDB relation, which runs when its rows are fetched.

    Unlike `answer_confined` it may read files beside the lake (``FROM 'mine.parquet'``): in Python a user may anyway.

    Raises:
        BadQuery: The statement is not a SELECT, or DuckDB refuses it.
        PairmillError: The lake cannot be read.
    """
    check_reads_only(lake, sql)
    provide(lake, sql)
    lake.check_tables_of(sql)

    def body() -> Relation | None:
        try:
            return lake.connection.sql(sql)
        except duckdb.Error as error:
            raise error if LOCKED in str(error) else _as_user_error(error, lake) from error

    found = retry_while_busy(body, lake.uri, is_inside=False, doublings=1)
    if found is None:
        raise BadQuery("the statement is empty; write one, such as SELECT count(*) FROM images.")
    return found


def _begun(lake: Lake, sql: str) -> duckdb.DuckDBPyConnection:
    """Run ``sql``. Raises DuckDB's error for a catalog that is locked, else one for the user."""
    try:
        return lake.connection.execute(sql)
    except duckdb.Error as error:
        if LOCKED in str(error):
            raise
        raise _as_user_error(error, lake) from error


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
    said = in_a_line(error)
    if _REFUSED.search(said):
        return BadQuery(f"refused: {said}. {REMEDY}")
    if absent := _ABSENT.search(said):
        return BadQuery(f"refused: it needs DuckDB's extension '{absent[1]}', which is not loaded for this lake.")
    error_with_remedy = translated(error, lake.uri)
    return error_with_remedy if isinstance(error_with_remedy, PairmillError) else BadQuery(said)
