"""Choose the loosest threshold at which the share of wrong items is bounded, from people's judgements.

Candidates are tested from strict to loose, and the first that fails ends the test (learn then test: Angelopoulos et
al., 2021, by fixed-sequence testing). So the chance that the chosen threshold lets through a larger share of wrong
items is at most 1 - confidence, however many candidates there are. This holds if the number of labels was decided
before they were seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.canary_rates import labels_needed, upper_bound
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.judge.sample_draw import JudgedSample
from pairmill.catalog.terms.error import PairmillError

EXPECTED = 1.25  # times the labels needed without a wrong one, which a candidate is to expect before it is tested
SHARES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)  # of the sample's frame, that the candidates keep unless some are named


@dataclass(frozen=True)
class Candidate:
    """One threshold of a test.

    Attributes:
        threshold: Items with at least this value are kept.
        population: Items of the sample's frame that it keeps.
        labels: Judged items of the sample that it keeps.
        wrong: Those among them that some judge did not call a match.
        bound: Upper bound of the share of wrong items.
        outcome: 'holds', 'fails', 'untested' for a looser one than the first that fails, or 'too strict' for one that
            the sample is too small for.
        lacking: How many more labels, all of matches, it needs; 0 if its bound is low enough.
    """

    threshold: float
    population: int
    labels: int
    wrong: int
    bound: float
    outcome: str
    lacking: int


@dataclass(frozen=True)
class JudgedThreshold:
    """The candidates from strict to loose, and the ``threshold`` chosen among them; None if the strictest fails.

    ``judged``: items of the sample, from its first on without a gap, that have a judgement. ``quantity``: SQL of what
    ``rule`` compares. ``scorers``: digests, by name, of the models that the threshold is valid for.
    """

    sample_id: str
    rule: str
    quantity: str
    judged: int
    candidates: tuple[Candidate, ...]
    threshold: float | None
    scorers: dict[str, str] = field(default_factory=dict)


def fixed_sequence(
    labels: Sequence[tuple[float, bool]], populations: Sequence[tuple[float, int]], share: float, confidence: float
) -> tuple[Candidate, ...]:
    """Test candidates from strict to loose; the first failure stops the test.

    A candidate is 'too strict', and not tested, if the sample is expected to have too few labels above it. That follows
    from the size of the sample and the populations alone, which no label decides, so the guarantee holds.

    Args:
        labels: (value, is wrong) of each judged item of a simple random sample above the loosest candidate.
        populations: (threshold, items that it keeps) of each candidate, in any order.
        share: Largest allowed share of wrong items, 0 to 1.
        confidence: Chance that the share is not exceeded, 0 to 1.
    """
    found: list[Candidate] = []
    goes_on, of = True, max((n for _, n in populations), default=0)
    fewest = EXPECTED * labels_needed(0, share, confidence)
    for threshold, population in sorted(populations, reverse=True):
        kept = [is_wrong for value, is_wrong in labels if value >= threshold]
        wrong = sum(kept)
        bound = upper_bound(wrong, len(kept), confidence)
        is_tested = len(labels) * population >= fewest * of
        outcome = "holds" if bound <= share else "fails"
        outcome = outcome if is_tested and goes_on else "untested" if is_tested else "too strict"
        lacking = 0 if bound <= share else labels_needed(wrong, share, confidence) - len(kept)
        found.append(Candidate(threshold, population, len(kept), wrong, bound, outcome, max(lacking, 0)))
        goes_on = goes_on and outcome != "fails"
    return tuple(found)


def judged_threshold(
    gallery: Gallery, judged: JudgedSample, share: float, confidence: float, candidates: Sequence[float] = ()
) -> JudgedThreshold:
    """Choose a threshold by the judgements of a sample. A pair is wrong unless every judge called it a match.

    ``candidates`` are thresholds at or above the sample's; by default those that keep SHARES of its frame, which no
    label decides. Raises PairmillError for a looser one: the sample says nothing about items below its threshold.
    """
    loosest = judged.sample.threshold
    if below := [each for each in candidates if each < loosest]:
        raise PairmillError(
            f"the sample was drawn at {loosest:g} and says nothing about {min(below):g}; draw another from there."
        )
    labels = _labels(judged)
    tested = fixed_sequence(labels, _populations(gallery, judged, candidates), share, confidence)
    holding = [each.threshold for each in tested if each.outcome == "holds"]
    of = judged.sample
    return JudgedThreshold(of.sample_id, of.rule, of.quantity, len(labels), tested, min(holding, default=None))


def sample_of(judged: Sequence[JudgedSample], dataset: Dataset, rule: str) -> JudgedSample | None:
    """Return the sample of this very version and rule with the most judged items, the newest of several; or None."""
    version = (dataset.name, dataset.version, dataset.content_digest, rule)
    own = [
        each
        for each in judged
        if (each.sample.dataset, each.sample.version, each.sample.content_digest, each.sample.rule) == version
    ]
    return max(own, key=lambda each: len(_labels(each)), default=None)


def _labels(judged: JudgedSample) -> list[tuple[float, bool]]:
    """Return (value, is wrong) of the sample's items from the first on, up to the first that has no judgement.

    What people judged beyond a gap is no part of the random sample: they may have chosen it.
    """
    by_position: dict[int, list[tuple[float, bool]]] = {}
    for each in judged.judgements:
        by_position.setdefault(each.position, []).append((each.value, each.verdict != "match"))
    labels = []
    while len(labels) in by_position:
        told = by_position[len(labels)]
        labels.append((told[0][0], any(is_wrong for _, is_wrong in told)))
    return labels


def _populations(gallery: Gallery, judged: JudgedSample, candidates: Sequence[float]) -> list[tuple[float, int]]:
    """Return (threshold, items of the frame that it keeps) of each candidate."""
    sample = judged.sample
    value = f"CAST({sample.quantity} AS DOUBLE)"
    frame = f"dropped_by IN ('', {quoted(sample.rule)}) AND {value} >= {sample.threshold!r}::DOUBLE"
    thresholds = set(candidates)
    if not thresholds:
        quantiles = ", ".join(str(1 - each) for each in SHARES)
        row = gallery.rows(f"SELECT quantile_disc({value}, [{quantiles}]) AS q FROM images WHERE {frame}")[0]
        thresholds = {sample.threshold, *(row["q"] or [])[1:]}
    counts = ", ".join(
        f"count(*) FILTER ({value} >= {each!r}::DOUBLE) AS n{n}" for n, each in enumerate(sorted(thresholds))
    )
    found = gallery.rows(f"SELECT {counts} FROM images WHERE {frame}")[0]
    return [(each, found[f"n{n}"]) for n, each in enumerate(sorted(thresholds))]
