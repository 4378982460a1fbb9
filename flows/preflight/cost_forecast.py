"""Forecast the hours, GPU-hours, disk, memory and money of a run from what its sample took on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from pairmill.flows.preflight.measured_run import Item, Measured
from pairmill.flows.preflight.yield_forecast import YieldForecast
from pairmill.ops.whole.cluster_sample import Range, ratio_range

# The steps that work at the pictures which duplicates leave; all others work at what the units hold.
AFTER_COPIES = frozenset({"caption", "tag", "fuse", "score_pairs"})
# Bytes of a picture in the search of duplicates, which this process holds: hash, parts and edges.
BYTES_A_PICTURE = 126
# Steps in this process (training, grouping) grow with a power of the pictures between these two.
POWER = 1.3


@dataclass(frozen=True)
class CostForecast:
    """What a run takes on this machine, each with its 90 % interval.

    Attributes:
        hours: Hours by the clock.
        worker_hours: Hours of all workers together.
        gpu_hours: Hours of workers with a GPU, times their GPUs.
        gigabytes: What the run writes to the lake, in 10**9 bytes.
        memory: Memory of all processes of this machine, in 10**9 bytes.
        money: Price of the tokens; None if no model has a price.
    """

    hours: Range
    worker_hours: Range
    gpu_hours: Range
    gigabytes: Range
    memory: Range
    money: Range | None


def forecast_cost(
    measured: Measured, found: YieldForecast, share: float, written: tuple[int, int], workers: int, is_priced: bool
) -> CostForecast:
    """Return the costs of a run.

    Args:
        measured: What the sample took.
        found: The forecast of its yield.
        share: Share of all documents in the sample.
        written: Bytes of pictures, and of other files, that the sample wrote.
        workers: The most workers at once.
        is_priced: Whether any model has a price.
    """
    whole = ("rows", "seconds", "gpus", "cost")
    sums = dict.fromkeys(whole, Range(0.0, 0.0, 0.0))
    clock = Range(0.0, 0.0, 0.0)
    wider = _relative(found.pictures)
    for step, seconds in measured.seconds.items():
        items = measured.items.get(step, [])
        grown = found.after_copies if step in AFTER_COPIES else 1 / share
        work = _grown(items, "seconds", grown, wider)
        sums["seconds"] = _sum(sums["seconds"], work)
        sums["gpus"] = _sum(sums["gpus"], _grown([i for i in items if i.gpus], "gpu_seconds", grown, wider))
        sums["cost"] = _sum(sums["cost"], _grown(items, "cost", grown, wider))
        at_once = min(workers, max(1, len(items)))
        busy = sum(each.seconds for each in items) / at_once
        own = max(0.0, seconds - busy)
        if items:  # the rest of the step is its start: processes and models
            clock = _sum(clock, work.times(1 / workers), Range(own, own, own * min(grown, 2.0)))
        else:
            clock = _sum(clock, Range(own, own * grown, own * grown**POWER))
    pictures = found.pictures
    stored, others = (n / share for n in written)
    # A file of few rows is mostly footer, and the whole has fuller files, not so many more: hence the lower end.
    least_others = written[1] + (others - written[1]) / 4
    bytes_stored = found.n_bytes.times(stored / max(found.n_bytes.value, 1.0))
    disk = Range(bytes_stored.low + least_others, stored + others, bytes_stored.high + others * wider[2])
    memory = Range(
        *(measured.memory + BYTES_A_PICTURE * each for each in (pictures.low, pictures.value, pictures.high))
    )
    return CostForecast(
        clock.times(1 / 3600),
        sums["seconds"].times(1 / 3600),
        sums["gpus"].times(1 / 3600),
        disk.times(1e-9),
        memory.times(1e-9),
        sums["cost"] if is_priced else None,
    )


def _relative(pictures: Range) -> tuple[float, float, float]:
    """Return the ends of the range of all pictures, as multiples of its value."""
    value = max(pictures.value, 1.0)
    return pictures.low / value, 1.0, min(pictures.high, 1e18) / value


def _grown(items: list[Item], what: str, grown: float, wider: tuple[float, float, float]) -> Range:
    """Return the sum over ``grown`` times the items: their rate varies between items, their number between units."""
    rows = sum(each.rows for each in items)
    if not rows:
        return Range(0.0, 0.0, 0.0)
    rate = ratio_range([(_of(each, what), each.rows) for each in items])
    n = rows * grown
    below = ((1 - rate.low / rate.value) ** 2 + (1 - wider[0]) ** 2) ** 0.5 if rate.value else 0.0
    above = ((rate.high / rate.value - 1) ** 2 + (wider[2] - 1) ** 2) ** 0.5 if rate.value else 0.0
    value = rate.value * n
    return Range(value * (1 - below), value, value * (1 + above)).within(0.0, inf)


def _of(item: Item, what: str) -> float:
    """Return the seconds, GPU-seconds or cost of an item."""
    return item.gpus * item.seconds if what == "gpu_seconds" else getattr(item, what)


def _sum(*parts: Range) -> Range:
    """Return the sum of ranges whose errors may go together, so that their widths add up."""
    return Range(*(sum(ends) for ends in zip(*((p.low, p.value, p.high) for p in parts), strict=True)))
