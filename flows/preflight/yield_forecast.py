"""Forecast from a sample how many pictures each step of the cut drops.

A rule's drops grow with the units. Duplicates do not, and are estimated from the repeats of contents between units
(`ops.whole.repeats`). A rule that asks for a similar sentence drops a smaller share of more pictures, because there are
more sentences to choose from; that share is estimated from the number of units in which a picture has one. The steps
after these drop the share that they drop in the sample, of what is left. A cap's drops come from the sizes of clusters,
of which the sample has few, so that they vary as much as these do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pairmill.catalog.queries.losses.unit_outcomes import UnitOutcomes
from pairmill.ops.whole.cluster_sample import Range, counted, jackknife
from pairmill.ops.whole.repeats import repeats, repeats_range, still_none

COPIES = ("exact_duplicate", "duplicate")
CAP = "balance"
IN_LAKE = "in_the_lake"


@dataclass(frozen=True)
class StepForecast:
    """One step of the cut: how many pictures reach it and how many it drops, with what the sample has of both."""

    rule: str
    n_in: Range
    dropped: Range
    sample_in: int
    sample_dropped: int


@dataclass(frozen=True)
class YieldForecast:
    """All pictures, what each step drops, and the pairs that are left."""

    pictures: Range
    steps: tuple[StepForecast, ...]
    pairs: Range
    n_bytes: Range

    @property
    def after_copies(self) -> float:
        """How many times as many pictures as in the sample are left by duplicates; 1 if none is left there."""
        last = [each for each in self.steps if each.rule in COPIES][-1]
        left = last.sample_in - last.sample_dropped
        return (last.n_in.value - last.dropped.value) / left if left else 1.0


class CountedSample:
    """The outcomes of a sample, counted by unit.

    Args:
        found: What became of the pictures.
        rules: The steps of the cut on images, in order.
        n_units: Units of the sample.
        share: Share of all units.
        known: Contents that the lake has already: their pictures are dropped before all steps.
        similar: For each rule that asks for a similar sentence, in how many units a picture has one, int (n,). Of
            the pictures that such a rule drops in the sample, some find a sentence in the whole.
        clusters: For each cluster the pictures that reach the cap and those that it drops, float64 (clusters, 2).
    """

    def __init__(
        self,
        found: UnitOutcomes,
        rules: Sequence[str],
        n_units: int,
        share: float,
        known: frozenset[str] = frozenset(),
        similar: Mapping[str, np.ndarray] | None = None,
        clusters: np.ndarray | None = None,
    ) -> None:
        self.rules = [*([IN_LAKE] if known else []), *rules]
        self.n_units, self.share = n_units, share
        self._unit = found.unit
        fates = found.dropped_by
        if known:
            fates = np.where(np.isin(found.content, list(known)), IN_LAKE, fates)
        self.counts = np.zeros((n_units, len(self.rules) + 2))  # each rule, the kept, bytes
        for place, rule in enumerate([*self.rules, ""]):
            np.add.at(self.counts[:, place], found.unit, fates == rule)
        np.add.at(self.counts[:, -1], found.unit, found.n_bytes)
        self._early = self.rules.index(COPIES[0])
        alive = ~np.isin(fates, self.rules[: self._early])
        self._alive = alive
        self._similar = {
            rule: (self.rules.index(rule), ~np.isin(fates, self.rules[: self.rules.index(rule)]), seen)
            for rule, seen in (similar or {}).items()
        }
        self._clusters = np.zeros((0, 2)) if clusters is None else clusters
        self._keys = [np.unique(keys, return_inverse=True)[1] for keys in (found.content, found.group)]

    @property
    def similar_rules(self) -> list[str]:
        """The rules that ask for a similar sentence."""
        return list(self._similar)

    @property
    def totals(self) -> np.ndarray:
        """What the sample has of each rule, the kept ones and bytes, float64 (rules + 2,)."""
        return self.counts.sum(axis=0)

    def estimates(self, weights: np.ndarray) -> np.ndarray:
        """Return the forecast of all pictures, each rule's drops, the pairs, and bytes, float64 (rules + 3,)."""
        share = self.share * (weights > 0).mean()
        sums = weights @ self.counts / self.share
        drops, left, grown = self._early_drops(sums, weights, share)
        exact, both = (self._copies(place, weights, share) * grown for place in range(2))
        later = _later(sums[self._early + 2 : -1], left - both)
        return np.array([sums[:-1].sum(), *drops, exact, both - exact, *later, sums[-1]])

    def _early_drops(self, sums: np.ndarray, weights: np.ndarray, share: float) -> tuple[list[float], float, float]:
        """Return the drops of the rules before duplicates, the pictures left, and these as multiples of the linear.

        ``weights`` all 0 stand for a whole that has no more similar sentences than the sample.
        """
        places = {place: (reach, seen) for place, reach, seen in self._similar.values()}
        drops, left, grown = [], float(sums[:-1].sum()), 1.0
        for place, linear in enumerate(sums[: self._early].tolist()):
            dropped = linear * grown
            passed = left - dropped
            if place in places and weights.any():
                reach, seen = places[place]
                dropped *= still_none(seen[reach & (weights[self._unit] > 0)], share)
            grown *= (left - dropped) / passed if passed > 0 else 1.0
            left -= dropped
            drops.append(dropped)
        return drops, left, grown

    def capped_error(self) -> float:
        """Return the half interval of the cap's drops relative to them, 0 to 1, as far as clusters differ in size.

        The sample has few clusters, so their sizes are uncertain. 0 if the cap drops nothing in the sample.
        """
        reach, dropped = self._clusters.T
        if not dropped.any():
            return 0.0
        (found,) = jackknife(lambda weights: np.array([weights @ dropped / (weights @ reach)]), len(reach), self.share)
        return min(1.0, (found.high - found.value) / found.value)

    def after_copies(self, copies: float, is_linear: bool = False) -> float:
        """Return the pairs that are left if ``copies`` pictures are dropped as duplicates.

        ``is_linear``: as if the whole had no more similar sentences than the sample.
        """
        sums, weights = self.totals / self.share, np.full(self.n_units, 0.0 if is_linear else 1.0)
        _, left, grown = self._early_drops(sums, weights, self.share)
        return float(_later(sums[self._early + 2 : -1], left - copies * grown)[-1])

    def copies_range(self, place: int) -> tuple[float, float]:
        """Return the limits of the dropped copies: exact ones (0), or both kinds (1)."""
        within, seen = self._incidences(place, np.ones(self.n_units))
        low, high = repeats_range(seen, self.share)
        within_low, within_high = counted(within, self.share)
        return low + within_low, high + within_high

    def _copies(self, place: int, weights: np.ndarray, share: float) -> float:
        """Return how many pictures are not the first of their content (0) or group (1)."""
        within, seen = self._incidences(place, weights)
        return within / share + repeats(seen, share)

    def _incidences(self, place: int, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the copies within single units, and for each key in how many units it is."""
        chosen = self._alive & (weights[self._unit] > 0)
        pairs = np.unique(np.stack([self._keys[place][chosen], self._unit[chosen]], axis=1), axis=0)
        _, seen = np.unique(pairs[:, 0], return_counts=True)
        return float(chosen.sum() - len(pairs)), seen


def _later(shares: np.ndarray, left: float) -> np.ndarray:
    """Divide ``left`` pictures among the later steps and the kept ones as the sample does."""
    total = shares.sum()
    return shares / total * max(left, 0.0) if total else np.zeros(len(shares))


def forecast_yield(sample: CountedSample) -> YieldForecast:
    """Return the forecast of a sample. An interval is never narrower than that of as rare independent pictures."""
    found = jackknife(sample.estimates, sample.n_units, sample.share)
    pictures, n_bytes = found[0].within(0, np.inf), found[-1].within(0, np.inf)
    drops = [each.within(0, max(each.value, pictures.high)) for each in found[1:-2]]
    totals = sample.totals
    exact = sample.rules.index(COPIES[0])
    limits = [sample.copies_range(place) for place in range(2)]
    for place, drop in enumerate(drops):
        n = totals[place]
        if place not in (exact, exact + 1):
            factor = drop.value / (n / sample.share) if n else 1.0
            low, high = counted(n, sample.share)
            drops[place] = drop.widened(low * factor, high * factor)
    near = sample.totals[exact + 1]
    drops[exact] = drops[exact].widened(*limits[0])
    drops[exact + 1] = drops[exact + 1].widened(
        max(near, limits[1][0] - limits[0][1]), max(limits[1][1] - limits[0][0], 0.0)
    )
    raised = {sample.rules.index(rule) for rule in sample.similar_rules}
    drops = [
        drop.widened(drop.low, totals[place] / sample.share) if place in raised else drop.within(totals[place], np.inf)
        for place, drop in enumerate(drops)
    ]
    few = _of_few_clusters(sample, found)
    if few:
        place = sample.rules.index(CAP)
        drops[place] = _beside(drops[place], few).within(totals[place], np.inf)
    pairs = _beside(_pairs(sample, found[-2], limits[1]), few).within(0, np.inf)
    return YieldForecast(pictures, _steps(sample, pictures, drops), pairs, n_bytes)


def _of_few_clusters(sample: CountedSample, found: Sequence[Range]) -> float:
    """Return `capped_error` in pictures of the whole; 0 for a recipe without a cap."""
    return sample.capped_error() * found[1 + sample.rules.index(CAP)].value if CAP in sample.rules else 0.0


def _beside(of_units: Range, half: float) -> Range:
    """Return the range with an independent error of half interval ``half`` added, as the root of the squares' sum."""
    low, high = (float(np.hypot(each - of_units.value, half)) for each in (of_units.low, of_units.high))
    return Range(of_units.value - low, of_units.value, of_units.value + high)


def _pairs(sample: CountedSample, found: Range, copies: tuple[float, float]) -> Range:
    """Return the range of the pairs: the variance between units, and with it that of the duplicates."""
    most, least = (sample.after_copies(each) for each in copies)
    low, high = counted(sample.totals[-2], sample.share)
    if sample.similar_rules:
        least = min(least, sample.after_copies((copies[0] + copies[1]) / 2, is_linear=True))
    below = np.hypot(found.value - found.low, max(0.0, found.value - least))
    above = np.hypot(found.high - found.value, max(0.0, most - found.value))
    widened = Range(found.value - below, found.value, found.value + above)
    factor = found.value / max(1.0, sample.totals[-2] / sample.share)
    return widened.widened(low * factor, high * factor).within(0, np.inf)


def _steps(sample: CountedSample, pictures: Range, drops: Sequence[Range]) -> tuple[StepForecast, ...]:
    """Return the steps with the pictures that reach each: those of the step before without its drops."""
    steps, left = [], pictures
    sample_left = int(sample.totals[:-1].sum())
    for rule, dropped, n in zip(sample.rules, drops, sample.totals[:-2].astype(int).tolist(), strict=True):
        steps.append(StepForecast(rule, left, dropped, sample_left, n))
        left, sample_left = left.times(max(0.0, 1 - dropped.value / max(left.value, 1e-9))), sample_left - n
    return tuple(steps)
