"""Compute the geometry of the charts that templates draw: bars of a histogram, and of cluster sizes."""

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Histogram


def bars(drawn: "Histogram", number: Callable[[float], str]) -> list[tuple[int, str, bool]]:
    """Return (count, title, whether the rule drops the bin's middle) for each bin of a histogram."""
    found = []
    for at, count in enumerate(drawn.counts):
        start, end = drawn.low + at * drawn.width, drawn.low + (at + 1) * drawn.width
        is_one = drawn.is_whole and drawn.width == 1
        values = number(start) if is_one else f"{number(start)} to {number(end)}"
        found.append((count, f"{values}: {count:,}", not _passes(drawn, start if is_one else (start + end) / 2)))
    return found


def _passes(drawn: "Histogram", value: float) -> bool:
    """Return whether the rule keeps a value."""
    q = drawn.quantity
    above = q.low is None or value > q.low or (value == q.low and not q.strict_low)
    return above and (q.high is None or value < q.high or (value == q.high and not q.strict_high))


def cluster_sizes(n: int, sizes: Sequence[tuple[int, int, int]], cap: int) -> dict[str, Any]:
    """Lay out a chart of ``n`` clusters from ``sizes``: (rank, size before the cap, size after), largest first.

    Returns:
        ``bars``: (height before, height after, title), heights in [0, 100]. ``line``: height of the cap. ``is_log``:
        whether heights are logarithmic, as they are if the largest is over 20 times the median. {} without sizes.
    """
    if not sizes:
        return {}
    largest = max(before for _, before, _ in sizes)
    top = max(largest, min(cap, 2 * largest))
    is_log = largest > 20 * max(1, sizes[len(sizes) // 2][1])

    def height(value: float) -> float:
        return round(100 * (math.log1p(value) / math.log1p(top) if is_log else value / top), 2)

    laid = [(height(b), height(a), f"rank {rank:,}: {b:,} before, {a:,} after") for rank, b, a in sizes]
    line = min(height(cap), 100.0)
    return {"n": n, "bars": laid, "cap": cap, "line": line, "largest": largest, "is_log": is_log}
