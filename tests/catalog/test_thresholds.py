"""What can be drawn of a rule, and histograms of what it compares."""

import math

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.queries.figures.histogram import BINS, histogram
from pairmill.catalog.recipe.plan import compile_plan, quantities, tables_of
from pairmill.catalog.recipe.recipe import validate
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.catalog.terms.declared import declared

TYPES = {column: kind for table in tables_of("image", declared()) for column, kind in table.columns.items()}


def found(keep: str) -> list[tuple]:
    content = {"name": "r", "models": {"clip": "open_clip:tiny/none"}, "images": [{"name": "rule", "keep": keep}]}
    check = next(c for c in compile_plan(validate(content, "r"), {}).image_checks if c.name == "rule")
    return [(q.label, q.low, q.strict_low, q.high, q.strict_high) for q in quantities(check, TYPES)]


@pytest.mark.parametrize(
    ("keep", "drawn"),
    [
        ("width >= 100", [("width", 100, False, None, False)]),
        ("100 < width", [("width", 100, True, None, False)]),
        ("sharpness <= -0.25", [("sharpness", None, False, -0.25, False)]),
        ("width between 3 and 9*9", [("width", 3, False, 81, False)]),
        ("width > 3 and width < 9 and width >= 4", [("width", 4, False, 9, True)]),
        ("not (width < 5)", [("width", 5, False, None, False)]),
        ("least(width, height) >= 64", [("least(width, height)", 64, False, None, False)]),
        ("greatest(width, height) <= 3 * least(width, height)",
         [("greatest(width, height) / least(width, height)", None, False, 3, False)]),
        ("least(width, height) * 3 > width", [("width / least(width, height)", None, False, 3, True)]),
        ("width < 5 or height < 6", [("height", None, False, None, False), ("width", None, False, None, False)]),
        ("width > height", [("height", None, False, None, False), ("width", None, False, None, False)]),
        ("format = 'jpeg' and alt_text >= 'x'", []),
    ],
)  # fmt: skip
def test_a_plain_comparison_has_a_threshold_and_any_other_rule_its_numeric_columns(keep: str, drawn: list):
    assert found(keep) == drawn


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)), min_size=1, max_size=20),
    st.none() | st.floats(-1e6, 1e6), st.none() | st.floats(-1e6, 1e6), st.booleans(),
)  # fmt: skip
def test_a_histogram_counts_each_value_once_and_shows_each_near_threshold(values, low, high, whole):
    values = [float(math.floor(value)) for value in values] if whole else values
    quantity = Quantity("v", ("v",), "rule", low, high)
    with duckdb.connect() as connection:

        def rows(sql: str) -> list[dict]:
            found = connection.execute(sql)
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

        sql = f"SELECT unnest([{', '.join(map(repr, values))}, NULL, 'inf'::DOUBLE])::DOUBLE AS v"
        found = histogram(rows, sql, quantity, "image")
    assert found is not None and (found.lowest, found.highest) == (min(values), max(values))
    assert sum(found.counts) == len(values) and found.missing == 2 and 1 <= len(found.counts) <= BINS
    for edge in (low, high):
        span = max(values) - min(values)
        if edge is not None and min(values) <= edge <= max(values) and span < 1.3 * abs(found.high - found.low):
            assert found.low - 1e-6 <= edge <= found.high + 1e-6
    if whole and max(values) - min(values) < BINS and low is None and high is None:
        assert found.width == 1 and found.counts[0] == values.count(min(values))
