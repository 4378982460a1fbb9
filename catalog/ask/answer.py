"""One question of a user's own in SQL, answered row by row: an answer may be larger than memory."""

from collections.abc import Iterator

import duckdb

from catalog.lake.error import BadQuery, PairmillError, translated
from catalog.lake.lake import Lake


def answer(lake: Lake, sql: str) -> tuple[list[str], Iterator[tuple]]:
    """The column names and the rows of a statement; no columns when it answers nothing. BadQuery says what is wrong."""
    try:
        cursor = lake.connection.execute(sql)
    except duckdb.Error as error:
        raise _as_user_error(error, lake) from error
    if cursor is None:  # blanks or a comment
        raise BadQuery('there is no statement; ask one, such as pairmill sql "SELECT count(*) FROM images".')
    return [column[0] for column in cursor.description or ()], _rows(lake, cursor)


def _rows(lake: Lake, cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple]:
    try:
        while chunk := cursor.fetchmany(2048):
            yield from chunk
    except duckdb.Error as error:
        raise _as_user_error(error, lake) from error


def _as_user_error(error: duckdb.Error, lake: Lake) -> Exception:
    """Whatever DuckDB refuses here, the statement is its user's own."""
    error_with_remedy = translated(error, lake.uri)
    return error_with_remedy if isinstance(error_with_remedy, PairmillError) else BadQuery(str(error))
