"""What can be drawn of a rule, and bins that put thresholds on their edges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.queries.figures.histogram import BINS, bins, passing
from pairmill.catalog.recipe.plan import compile_plan, tables_of
from pairmill.catalog.recipe.recipe import validated
from pairmill.catalog.recipe.thresholds import Quantity, quantities
from pairmill.catalog.terms.declared import declared

TYPES = {column: kind for table in tables_of("image", declared()) for column, kind in table.columns.items()}


def found(keep: str) -> list[tuple]:
    content = {"name": "r", "models": {"clip": "open_clip:tiny/none"}, "images": [{"name": "rule", "keep": keep}]}
    check = next(c for c in compile_plan(validated(content, "r"), {}).image_checks if c.name == "rule")
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


numbers = st.floats(-1e6, 1e6).map(lambda x: round(x, 3))


@given(st.tuples(numbers, numbers).map(sorted), st.none() | numbers, st.none() | numbers, st.booleans(), st.booleans())
def test_bins_cover_what_is_shown_and_no_bin_is_cut_by_the_lower_threshold(ends, low, high, strict, whole):
    if whole:
        ends = [math.floor(end) for end in ends]
    quantity = Quantity("x", ("x",), "rule", low, high, strict, strict)
    start, width, n = bins(quantity, tuple(ends), tuple(ends), whole)
    assert start <= ends[0] + 1e-6 and ends[1] <= start + n * width + 1e-6
    assert 1 <= n <= 3 * BINS + 2
    edge = passing(quantity, whole)[0]
    if edge is not None and ends[0] <= edge <= ends[1]:
        place = (edge - start) / width
        assert abs(place - round(place)) < 1e-3


@given(st.integers(-50, 50), st.integers(-50, 50), st.booleans(), st.booleans(), st.integers(-60, 60))
def test_whole_numbers_pass_between_the_edges_just_when_the_rule_keeps_them(low, high, strict_low, strict_high, value):
    kept = (value > low if strict_low else value >= low) and (value < high if strict_high else value <= high)
    first, end = passing(Quantity("x", ("x",), "r", low, high, strict_low, strict_high), whole=True)
    assert first is not None and end is not None
    assert kept == (first <= value < end)
