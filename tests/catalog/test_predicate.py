import json

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.recipe.predicate import FUNCTIONS, check, columns_of, normal_form
from pairmill.catalog.terms.error import BadPredicate
from tests.examples import examples

KNOWN = {"width": "INTEGER", "height": "INTEGER", "sharpness": "DOUBLE", "has_url": "BOOLEAN", "language": "VARCHAR",
         "tags": "VARCHAR[]", "phash": "UBIGINT", "best_similarity": "DOUBLE", "n_words": "INTEGER"}  # fmt: skip


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("least(width, height) >= 100", {"width", "height"}),
        ("n_words between 3 and 81", {"n_words"}),
        ("NOT has_url AND language IN ('en', 'de')", {"has_url", "language"}),
        ("coalesce(best_similarity, 0.0) >= 0.24 -- a remark", {"best_similarity"}),
        ("list_contains(tags, 'cat') OR tags[1] = 'dog'", {"tags"}),
        ("CASE WHEN width > 10 THEN sharpness > 1 ELSE has_url END", {"width", "sharpness", "has_url"}),
        ("width::DOUBLE / height <= 3 AND sharpness IS NOT NULL", {"width", "height", "sharpness"}),
        ("language LIKE 'e%' AND language ~ '[a-z]+'", {"language"}),
        ("WIDTH > 3 AND language is distinct from 'en'", {"width", "language"}),
        ("true", set()),
    ],
)
def test_a_scalar_expression_tells_its_columns(sql: str, columns: set[str]) -> None:
    assert check("rule", sql, KNOWN) == columns


@pytest.mark.parametrize(
    "sql",
    [
        "", "  ", "width >", "width > 1; DROP TABLE images", "(SELECT true)", "width IN (SELECT 1)",
        "EXISTS (SELECT 1)", "sum(width) > 1", "count(*) > 1", "max(width) OVER () > 1", "row_number() OVER () < 5",
        "getenv('HOME') = 'x'", "width > 1) AND (SELECT true", "true) FROM read_csv('/etc/passwd') WHERE (true",
        "true), (true", "true) UNION SELECT (true", "true) ORDER BY (1", "true) LIMIT (1", "read_text('/x') = 'y'",
        "images.width > 1", "main.abs(width) > 1 AND system.main.abs(width) > 2", "COLUMNS(*) > 1",
        "COLUMNS('w.*') > 1", "#1 > 1", "? > 1", "$1 > 1", "$name > 1", "list_filter(tags, lambda x: x > 'a')[1] = 'a'",
        "random() > 0.5", "nextval('s') > 1", "current_setting('home_directory') = ''", "now() > '2020-01-01'",
        "width::images > 1", "{'a': width}.a > 1", "error('x')", "sleep_ms(1) is null", "language COLLATE nocase = 'a'",
        "abs(DISTINCT width) > 1", "list_contains(tags, 'a' ORDER BY 1)", "contains(language, 'a') FILTER (true)",
        "unnest(tags) = 'a'", "width > 1 -- )\n) FROM images WHERE (true", "repeat('a', 1000000000) = ''",
        "try(width > 1)", "\0", "width > 1" + " AND width > 1" * 400, "row(1, 2) = row(1, 2)", "true) AS x, (false",
        "NOT " * 990 + "true AND nextval('s') > 1", "DEFAULT", "*",
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_the_rule_and_the_remedy(sql: str) -> None:
    with pytest.raises(BadPredicate, match=r"rule 'sharp': .*"):
        check("sharp", sql, KNOWN)


def test_an_unknown_column_is_met_with_the_nearest() -> None:
    with pytest.raises(BadPredicate, match=r"rule 'sharp': no scorer computes 'sharpnes'; did you mean 'sharpness'?"):
        check("sharp", "sharpnes > 3", KNOWN)
    with pytest.raises(BadPredicate, match=r"no scorer computes 'zzz'; known are: best_similarity, "):
        check("sharp", "zzz > 3", KNOWN)


@pytest.mark.parametrize("sql", ["width", "width + 1", "'yes'", "NULL", "tags"])
def test_what_is_not_true_or_false_is_refused(sql: str) -> None:
    with pytest.raises(BadPredicate, match=r"not true or false"):
        check("rule", sql, KNOWN)


@pytest.mark.parametrize("sql", ["tags > 3", "list_contains(width, 1)", "language + 1 > 2", "abs(has_url) > 0"])
def test_types_that_do_not_fit_are_refused(sql: str) -> None:
    with pytest.raises(BadPredicate, match=r"rule 'rule': "):
        check("rule", sql, KNOWN)


def test_the_normal_form_has_no_comment_and_stands_safely_in_a_longer_statement() -> None:
    text = normal_form("rule", "width > 1 -- and\n/* more */ or has_url --")
    assert "--" not in text and "/*" not in text and "\n" not in text
    with duckdb.connect() as connection:
        sql = f"SELECT * FROM (VALUES (1, true), (0, false)) t(width, has_url) WHERE ({text}) AND width < 5"
        assert connection.execute(sql).fetchall() == [(1, True)]


def test_every_allowed_function_exists_and_has_no_side_effect() -> None:
    with duckdb.connect() as connection:
        sql = "SELECT function_name, bool_or(has_side_effects), bool_and(function_type IN ('scalar', 'macro')) "
        rows = connection.execute(sql + "FROM duckdb_functions() GROUP BY ALL").fetchall()
    effects = {name: (has_effect, scalar) for name, has_effect, scalar in rows}
    grammar = {"nullif"}  # the parser makes an operator of it
    for name in FUNCTIONS - grammar:
        assert effects[name] == (False, True) or effects[name] == (None, True), name


WORDS = r"""
width has_url tags ( ) , ; -- /* */ SELECT FROM images ' " $$ * AND OR NOT 1 'a' > = :: [ ] { } getenv read_csv
'/etc/passwd' sum OVER count(*) \ ? #1 . UNION CASE WHEN THEN END IN IS NULL lambda x: -> ATTACH COPY PRAGMA abs
COLLATE é
"""
TOKENS = [*WORDS.split(), "\n", "\0", "\ud800"]
texts = st.one_of(st.text(max_size=60), st.lists(st.sampled_from(TOKENS), max_size=12).map(" ".join))
SCALAR = {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE", "CAST", "FUNCTION", "OPERATOR"}


def classes_in(value: object) -> set[str]:
    """The slow, obvious walk."""
    if isinstance(value, list):
        return set().union(*map(classes_in, value))
    if isinstance(value, dict):
        own = {str(value["class"])} if "class" in value else set()
        return own.union(*map(classes_in, value.values()))
    return set()


@examples(400)
@given(texts)
def test_no_text_reaches_execution_with_anything_but_scalar_nodes(sql: str) -> None:
    try:
        columns = columns_of("rule", sql)
        checked = check("rule", sql, KNOWN)
    except BadPredicate:
        return
    assert columns == checked <= KNOWN.keys()
    text = normal_form("rule", sql)
    with duckdb.connect(config={"enable_external_access": False}) as connection:
        # In the place where the cut puts it, beside another condition.
        whole = f"SELECT 1 FROM t WHERE ({text}) AND (true)"
        answer = connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [whole]).fetchall()[0][0]
    tree = json.loads(answer)
    assert len(tree["statements"]) == 1
    assert classes_in(tree["statements"][0]["node"]["where_clause"]) <= SCALAR
