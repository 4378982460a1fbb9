"""How pages format numbers and draw histograms."""

from decimal import Decimal

import pytest

from pairmill.catalog.queries.figures.histogram import Histogram
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.flows.pages.renderer import bars, number


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0, "0"), (-0.0, "0"), (Decimal("0.30"), "0.3"), (Decimal(3), "3"), (10.950000000000001, "10.95"),
     (1234.5, "1,234"), (Decimal(2000), "2,000"), (-0.0004, "-0.0004"), (1234567, "1,234,567"), ("0.100", "0.100")],
)  # fmt: skip
def test_a_number_is_shown_alike_whichever_type_brings_it(value: object, shown: str):
    assert number(value) == shown


def drawn(counts: tuple[int, ...], width: float, is_whole: bool, *edges: float | None, strict: bool) -> Histogram:
    quantity = Quantity("q", ("q",), "rule", *edges, strict, strict)  # pyright: ignore[reportCallIssue]
    return Histogram(quantity, "image", 1.0, width, counts, 1.0, 1.0 + width * len(counts), 0, is_whole)


@pytest.mark.parametrize(("strict", "falls"), [(False, [True, False, False, True]), (True, [True, True, True, True])])
def test_an_integer_has_a_bar_of_its_own_that_falls_just_when_the_rule_drops_it(strict: bool, falls: list[bool]):
    found = bars(drawn((5, 6, 7, 1000), 1.0, True, 2.0, 3.0, strict=strict), number)
    assert [title for _, title, _ in found] == ["1: 5", "2: 6", "3: 7", "4: 1,000"]
    assert [each for *_, each in found] == falls


def test_a_bar_of_several_values_is_judged_by_its_middle():
    found = bars(drawn((5, 6), 0.5, False, 1.4, None, strict=False), number)
    assert found == [(5, "1 to 1.5: 5", True), (6, "1.5 to 2: 6", False)]
