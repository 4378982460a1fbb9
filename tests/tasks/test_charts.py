"""What the report's charts say of the values that they draw."""

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairmill.catalog.queries.figures.histogram import Histogram, bins
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.tasks.release.report.charts import chart, number


def drawn(values: list[float], low: float | None = None, high: float | None = None, whole: bool = False) -> Histogram:
    quantity = Quantity("q", ("q",), "rule", low, high, False, False)
    ends = min(values), max(values)
    start, width, n = bins(quantity, ends, ends, whole)
    counts = [0] * n
    for value in values:
        counts[max(0, min(n - 1, int((value - start) // width)))] += 1
    return Histogram(quantity, "image", start, width, tuple(counts), len(values), 0, whole, False, False, *ends)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (-0.0, "0"), (Decimal("0.30"), "0.3"), (Decimal(3), "3"), (10.950000000000001, "10.9"),
     (10.95, "10.9"), (1234.5, "1,234"), (Decimal(2000), "2,000"), (-0.0004, "-0.0004")],
)  # fmt: skip
def test_a_number_is_shown_alike_whichever_type_brings_it(value: float | Decimal | None, shown: str):
    assert number(value) == shown


def test_an_aspect_ratio_is_never_shown_below_one():
    shown = chart(drawn([1.0, 1.2, 1.5, 2.4, 5.0], high=3.0))
    assert (shown.first, shown.last) == ("1", "5")
    assert shown.bars[0].title.startswith("1 to ")


def test_an_axis_reaches_to_a_threshold_that_no_value_has():
    shown = chart(drawn([1.0, 1.2, 2.5], high=3.0))
    assert (shown.first, shown.last) == ("1", "3")


def test_no_count_is_shown_below_zero():
    shown = chart(drawn([0, 1, 2, 7, 90, 120], low=3, high=81, whole=True))
    assert (shown.first, shown.last) == ("0", "120")


@given(
    st.lists(st.floats(-100, 100).map(lambda x: round(x, 2)), min_size=1),
    st.none() | st.floats(-100, 100),
    st.none() | st.floats(-100, 100),
    st.booleans(),
)
@example([0.0, -27.23], None, None, False)
def test_an_axis_ends_at_a_value_or_a_threshold(
    values: list[float], low: float | None, high: float | None, whole: bool
):
    values = [float(round(value)) for value in values] if whole else values
    shown = chart(drawn(values, low, high, whole))
    known = {number(value) for value in (min(values), max(values), low, high)}
    assert {shown.first, shown.last} <= known
    assert sum(bar.height > 0 for bar in shown.bars) >= 1
