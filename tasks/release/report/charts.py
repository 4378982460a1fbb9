"""Compute the geometry of the report's charts (bars, lines, labels) for the template to draw."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from pairmill.catalog.queries.figures.histogram import Histogram, passing


@dataclass(frozen=True)
class Bar:
    """The bar of histogram bin ``at``.

    ``height`` is in [0, 100]; ``falls`` when the rule drops the bin's values; ``title`` is the tooltip.
    """

    at: int
    height: float
    falls: bool
    title: str


@dataclass(frozen=True)
class Mark:
    """A threshold at ``left`` percent of the axis; one that is ``beyond`` the axis is drawn at its edge."""

    left: float
    label: str
    beyond: bool


@dataclass(frozen=True)
class Chart:
    """A histogram to draw: one bar per bin, the thresholds, and the labels of the axis's two ends."""

    rule: str
    title: str
    kind: str
    bars: tuple[Bar, ...]
    marks: tuple[Mark, ...]
    first: str
    last: str
    note: str


def number(value: float | Decimal | None) -> str:
    """Format a number or DuckDB decimal: whole from 100 on, else three significant digits; None as a dash."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    value = float(f"{value:.12g}") + 0.0  # removes rounding errors of bin edges (10.9500000000001) and -0.0
    return f"{value:.0f}" if value == int(value) else f"{value:.3g}"


def chart(histogram: Histogram) -> Chart:
    """Lay out a histogram as bars of linear height; a bin that is not empty has at least 1.5 of 100."""
    tallest = max(histogram.counts)
    low, high = passing(histogram.quantity, histogram.whole)
    bars = []
    for bin, count in enumerate(histogram.counts):
        start = histogram.start + bin * histogram.width
        middle = start + histogram.width / 2
        falls = (low is not None and middle < low) or (high is not None and middle > high)
        bars.append(Bar(bin, _height(count, tallest), falls, f"{_range(histogram, bin)}: {count:,}"))
    marks = tuple(
        _mark(histogram, edge, value)
        for edge, value in ((low, histogram.quantity.low), (high, histogram.quantity.high))
        if edge is not None and value is not None
    )
    quantity = histogram.quantity
    note = f"{histogram.n:,} measured"
    note += f", {histogram.n_missing:,} without a value" if histogram.n_missing else ""
    note += f", {histogram.n_near:,} near a threshold" if histogram.n_near else ""
    first, last = _ends(histogram)
    return Chart(
        quantity.rule, quantity.label, histogram.kind, tuple(bars), marks,
        ("≤ " if histogram.has_less else "") + number(first),
        ("≥ " if histogram.has_more else "") + number(last), note,
    )  # fmt: skip


def _ends(histogram: Histogram) -> tuple[float, float]:
    """Return the values at which the axis's two ends are labelled.

    The outer bins may extend beyond the data, so that a threshold lies on a bin edge. Labels stay within the data,
    because an aspect ratio below 1, for example, does not exist.
    """
    known = (histogram.quantity.low, histogram.quantity.high)
    start, end = histogram.start, _end(histogram) - (1 if histogram.whole else 0)
    shown = [value for value in known if value is not None and start <= value <= end]
    first, last = min([histogram.lowest, *shown]), max([histogram.highest, *shown])
    least = 1e-9 * (end - start)  # tolerance for rounding errors of bin edges
    return (first if first >= start - least else start), (last if last <= end + least else end)


def _end(histogram: Histogram) -> float:
    """Return the end of the last bin."""
    return histogram.start + len(histogram.counts) * histogram.width


def _height(count: int, tallest: int) -> float:
    """Return a bar's height in [0, 100]."""
    return round(max(100 * count / tallest, 1.5), 2) if count else 0.0


def _range(histogram: Histogram, bin: int) -> str:
    """Format the range of values of a bin."""
    first, last = _ends(histogram)
    start = max(first, histogram.start + bin * histogram.width)
    end = histogram.start + (bin + 1) * histogram.width
    less, more = bin == 0 and histogram.has_less, bin == len(histogram.counts) - 1 and histogram.has_more
    if less or more:
        return f"below {number(end)}" if less else f"{number(start)} and more"
    end = min(last, end - 1 if histogram.whole else end)
    return number(start) if start >= end else f"{number(start)} to {number(end)}"


def _mark(histogram: Histogram, edge: float, value: float) -> Mark:
    """Lay out a threshold at ``edge``, labelled with ``value``; an arrow points beyond the axis."""
    left = 100 * (edge - histogram.start) / (_end(histogram) - histogram.start)
    beyond = not -1e-6 <= left <= 100 + 1e-6
    arrow = "" if not beyond else (" →" if left > 100 else "← ")
    label = arrow + number(value) if left < 0 else number(value) + arrow
    return Mark(round(min(max(left, 0.0), 100.0), 2), label, beyond)


@dataclass(frozen=True)
class Clusters:
    """Cluster sizes to draw, largest first.

    Attributes:
        n: Number of clusters.
        bars: (height before balance, height after, tooltip), heights in [0, 100].
        cap: Height of the cap's line.
        most: The cap as text.
        largest: The largest size as text.
        is_log: Whether heights are logarithmic.
    """

    n: int
    bars: tuple[tuple[float, float, str], ...]
    cap: float
    most: str
    largest: str
    is_log: bool


def clusters(n: int, sizes: Sequence[tuple[int, int, int]], cap: int) -> Clusters | None:
    """Lay out cluster sizes (rank, before, after); logarithmic if the largest is over 20 times the median."""
    if not sizes:
        return None
    largest = max(before for _, before, _ in sizes)
    top = max(largest, min(cap, 2 * largest))
    is_log = largest > 20 * max(1, sizes[len(sizes) // 2][1])

    def height(value: float) -> float:
        return round(100 * (math.log1p(value) / math.log1p(top) if is_log else value / top), 2)

    bars = tuple((height(b), height(a), f"rank {rank:,}: {b:,} before, {a:,} after") for rank, b, a in sizes)
    return Clusters(n, bars, min(height(cap), 100.0), f"{cap:,}", f"{largest:,}", is_log)
