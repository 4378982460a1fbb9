"""Forecast from a sample of units how many pictures each step of the cut drops in the whole source.

Each step drops the share that it drops in the sample, of what reaches it. Two shares change with the size: that of
duplicates grows, for a sample of a tenth of the units has a hundredth of the pairs of copies; that of a rule on the
most similar sentence falls, for there are more sentences to choose from. The change is measured from halves of the
sample to all of it, and goes on by the same factor with each doubling up to the source. The factor of duplicates is 2
if copies come in pairs from different units, 1 if all copies are within their units. How far a share falls is
uncertain: its interval reaches from the sample's share to that of a fall through twice as many doublings.

An interval is by a bootstrap over units; that of a cap also by one over the clusters of the sample, since clusters of
different sizes lose different shares. A count in a resample gets a pseudo-count from Exp(1), so that a rule that
dropped nothing in the sample has an interval too: its upper end is 3.0 pictures of the sample, as for a Poisson count.

The forecast is wrong, and its interval too narrow, where

- the sample has few units, some ten: they do not show how much units vary;
- copies are in units that lie far apart, such as two crawls of one site, and the sample has few of both;
- a cap drops and the sample has but one or two clusters, which do not show how much sizes vary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import log2

import numpy as np

from pairmill.catalog.queries.losses.unit_outcomes import UnitOutcomes
from pairmill.ops.whole.cluster_sample import Range, interval, resampled_totals

COPIES = ("exact_duplicate", "duplicate")
CAP = "balance"
IN_LAKE = "in_the_lake"
SPLITS = 16  # of the sample's units into halves


@dataclass(frozen=True)
class StepForecast:
    """Forecast of one step of the cut: pictures that reach it and that it drops, with the sample's counts of both."""

    rule: str
    n_in: Range
    dropped: Range
    sample_in: int
    sample_dropped: int


@dataclass(frozen=True)
class YieldForecast:
    """Forecast of the whole run: its pictures, the steps of the cut, the pairs left, and the pictures' bytes."""

    pictures: Range
    steps: tuple[StepForecast, ...]
    pairs: Range
    n_bytes: Range

    @property
    def after_copies(self) -> float:
        """Ratio of the pictures left after duplicates, whole run to sample; 1 if the sample has none left."""
        last = [each for each in self.steps if each.rule in COPIES][-1]
        left = last.sample_in - last.sample_dropped
        return (last.n_in.value - last.dropped.value) / left if left else 1.0


def forecast_yield(
    found: UnitOutcomes,
    rules: Sequence[str],
    n_units: int,
    share: float,
    known: frozenset[str] = frozenset(),
    similar: Mapping[str, np.ndarray] | None = None,
    clusters: np.ndarray | None = None,
    seed: int = 0,
) -> YieldForecast:
    """Forecast the yield of the whole run from a sample.

    Args:
        found: The decisions on the sample's pictures.
        rules: The steps of the cut on images, in order.
        n_units: Units of the sample, with those that have no picture.
        share: Share of the source in the sample, above 0 and at most 1.
        known: Contents that the lake has already: their pictures are dropped before all steps.
        similar: For each rule on the most similar sentence, the number of units in which a picture has a passing
            sentence, float64 (n,); inf if its own unit has one, as then each half with the picture has one.
        clusters: For each cluster the pictures that reach the cap and those that it drops, float64 (clusters, 2).
        seed: Chooses halves and resamples.
    """
    fates = np.where(np.isin(found.content, list(known)), IN_LAKE, found.dropped_by)
    steps = [*([IN_LAKE] if known else []), *rules, ""]  # '' is that of the kept pictures
    early = list(takewhile(lambda rule: rule not in COPIES, steps))
    copies = _copies_in_halves(found, ~np.isin(fates, early), seed)
    in_halves: dict[str, np.ndarray] = dict(zip(COPIES, copies, strict=True))
    for rule, n_similar in (similar or {}).items():
        in_halves[rule] = 0.5**n_similar * ~np.isin(fates, steps[: steps.index(rule)])
    columns = [*(fates == rule for rule in steps), *in_halves.values(), found.n_bytes]
    counts = np.stack([np.bincount(found.unit, column, len(found.units)) for column in columns], axis=1)
    totals = resampled_totals(counts, n_units, share, seed)
    rng = np.random.default_rng(seed + 1)
    pseudo = (1 - share) * rng.exponential(size=(len(totals), len(steps)))
    pseudo[0] = 0.0

    capped = np.ones(len(totals))  # the share that the cap drops in resampled clusters, relative to the sample's
    if clusters is not None and clusters[:, 1].any():
        reach, dropped = resampled_totals(clusters, len(clusters), share, seed + 2).T
        capped = dropped / reach / (dropped[0] / reach[0])

    drops, halves = totals[:, : len(steps)], dict(zip(in_halves, totals[:, len(steps) : -1].T, strict=True))
    pictures = left = drops.sum(axis=1) / share
    forecast = []
    for place, rule in enumerate(steps[:-1]):
        reach, growth = drops[:, place:].sum(axis=1), np.ones(len(drops))
        if rule in halves:
            half = halves[rule] + pseudo[:, place] * (0.5 if rule in COPIES else 1.0)
            by_doubling = (drops[:, place] + pseudo[:, place]) / np.maximum(half, 1e-9)
            doublings = np.full(len(half), log2(1 / share))
            if rule not in COPIES:
                doublings[1:] *= rng.uniform(0, 2, len(half) - 1)
            growth = np.minimum(by_doubling, 2.0) ** doublings
        by_picture = growth * left / np.maximum(reach, 1e-9)  # pictures of the source for one of the sample
        gone = np.minimum(left, drops[:, place] * by_picture * (capped if rule == CAP else 1.0))
        shown = interval(np.minimum(left, gone + growth * pseudo[:, place] / share))
        forecast.append(StepForecast(rule, interval(left), shown, int(reach[0]), int(drops[0, place])))
        left = left - gone
    pairs = interval(left + pseudo[:, -1] / share)
    return YieldForecast(interval(pictures), tuple(forecast), pairs, interval(totals[:, -1] / share))


def _copies_in_halves(found: UnitOutcomes, alive: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the shares of SPLITS in which a picture duplicates another of its half of the units, both float64 (n,).

    The first share counts exact duplicates (equal content), the second near duplicates alone (equal group). Pictures
    that are not ``alive``, bool (n,), count as no duplicates.
    """
    rng, unit = np.random.default_rng(seed), found.unit[alive]
    keys = [np.unique(each[alive], return_inverse=True)[1] for each in (found.content, found.group)]
    exact, both = np.zeros(len(alive)), np.zeros(len(alive))
    for _ in range(SPLITS):
        half = rng.permutation(len(found.units))[unit] % 2
        for codes, copies in zip(keys, (exact, both), strict=True):
            is_copy = np.ones(len(codes))
            is_copy[np.unique(2 * codes + half, return_index=True)[1]] = 0
            copies[alive] += is_copy / SPLITS
    return exact, both - exact
