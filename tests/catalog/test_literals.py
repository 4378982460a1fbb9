"""Parameters that are written into a statement's text are what DuckDB would have bound."""

from datetime import UTC, datetime, timedelta, timezone

import duckdb
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.lake.literals import with_literals

TEXTS = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), st.sampled_from("'\"?$-;\n")), max_size=20)
NUMBERS = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=True, allow_infinity=True))
ZONES = st.integers(-720, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(
    min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1), timezones=st.one_of(st.just(UTC), ZONES)
)
VALUES = st.one_of(
    st.none(), st.booleans(), NUMBERS, TEXTS, TIMES, st.lists(TEXTS, max_size=4), st.lists(st.integers(-9, 2**40))
)
CONNECTION = duckdb.connect()


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_a_literal_is_the_value_that_is_bound(values: list) -> None:
    columns = ", ".join("?" for _ in values)
    asked = f"SELECT {columns}, '?' AS \"a ? b\", 'it''s ?' -- and ?\n"
    sql, left = with_literals(asked, values)
    assert repr(CONNECTION.execute(sql, left).fetchall()) == repr(CONNECTION.execute(asked, values).fetchall())


def test_numbered_parameters_stay_parameters() -> None:
    sql = "SELECT $1, $1, '?'"
    assert with_literals(sql, ["a"]) == (sql, ["a"])
    assert CONNECTION.execute(*with_literals(sql, ["a"])).fetchall() == [("a", "a", "?")]


def test_a_list_that_is_longer_than_a_parser_likes_stays_a_parameter() -> None:
    assert with_literals("SELECT len(?)", [["a"] * 5000])[1] == [["a"] * 5000]
    assert with_literals("SELECT len(?)", [["a"] * 50])[1] == []


def test_an_empty_list_is_written_out_with_the_type_of_the_parameter() -> None:
    sql, left = with_literals("SELECT typeof(?)", [[]])
    assert left == []
    assert CONNECTION.execute(sql).fetchall() == CONNECTION.execute("SELECT typeof(?)", [[]]).fetchall()
