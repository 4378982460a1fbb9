"""Estimate how many pairs are wrong, and the threshold at which a rule accepts few wrong texts, by canaries.

Of the pairs that a threshold keeps, at most accept rate x pi0 / keep rate are wrong. The accept rate is the share of
canaries at or above it, the keep rate that of the pictures' best texts; a cut with `max_uses` may show another text.
pi0 is the share of wrong texts among those of all pictures. By Storey's estimate (2002) it is the share of their
similarities that lie in the canaries' lowest quarter, over the canaries' own share there.

A canary's text is not always wrong: where many texts describe one thing, the best text of another page may fit too.
Then both factors are too high: the share stays an upper limit, but a threshold would drop most right texts. So own
texts and canaries are also taken as mixtures of the same two normal distributions, of wrong and of right texts, in
different shares, which expectation maximisation finds (Dempster, Laird and Rubin, 1977). By it, each canary is wrong
with a known chance, and the interval of the share reaches down to the mixture's own estimate.

A wrong text whose similarity is that of right ones is not seen. In made worlds where half of the canaries fit and wrong
texts have skew similarities, a threshold for 10 % accepts 24 %.
"""

from dataclasses import dataclass, replace

import numpy as np

from pairmill.catalog.cut import canaries, facts
from pairmill.catalog.cut.edits import LEFT_OUT
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import passed
from pairmill.catalog.pending.frozen_thresholds import FrozenThreshold, round_threshold
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.recipe.predicate import columns_of
from pairmill.catalog.recipe.thresholds import compared_score
from pairmill.catalog.terms.score import Stage

FEWEST = 50  # canaries; and pictures with a text
OWN = 2_000
APART = 1.25  # least distance of the two means, in standard deviations: below, normal mixtures are not told apart
LOWEST = 0.25  # share of the canaries by which pi0 is estimated
# A mixture finds right texts where the wrong ones are skew, 8 % of the canaries in made worlds where none was right.
# Below this share all canaries count as wrong.
FITTING = 0.15
RESAMPLED = 200
# Half the width of the interval in standard deviations of the resampled estimates, which are not normal.
WIDTH = 2.5
_ITERATIONS = 200


@dataclass(frozen=True)
class WrongShare:
    """Largest share of wrong pairs, [0, 1], with its interval; ``wrong_before``: of the pictures ``tried`` (pi0).

    The four are None without enough to estimate by: fewer than FEWEST canaries or kept texts, or with a rule on
    candidates, which withholds the lowest similarities of the pictures' own texts, but not of canaries.
    """

    tried: int
    kept: int
    canaries: int
    wrong_before: float | None = None
    share: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Mixture:
    """The fitted distributions: ``wrong`` and ``right`` as (mean, standard deviation), and the chances of the values.

    ``own`` and ``other`` have the chance that each value of a sample is a wrong text's, (n,) and (m,).
    """

    wrong: tuple[float, float]
    right: tuple[float, float]
    own: np.ndarray
    other: np.ndarray

    @property
    def is_told_apart(self) -> bool:
        """Whether the means are at least APART apart, and the canaries hold 5 wrong texts or more."""
        spread = np.hypot(self.wrong[1], self.right[1]) / np.sqrt(2)
        return self.right[0] - self.wrong[0] >= APART * spread and self.other.sum() >= 5


def threshold_by_canaries(lake: Lake, plan: Plan, check: Check) -> FrozenThreshold | None:
    """Return the threshold at which an image rule accepts the requested share of wrong texts; None if it is not known.

    Uses the pictures that pass all rules before ``check`` and have a text, each once.
    """
    assert check.rule.calibrate is not None and check.rule.calibrate.wrong is not None
    compared = compared_score(check.name, check.rule.keep)
    facts.attach(lake, plan)
    before = plan.image_checks[: plan.image_checks.index(check)]
    reached = f"SELECT {compared.expression} AS v, draw, picture FROM facts.images WHERE {passed(before)}"
    known = " AND ".join(f"{name} IS NOT NULL" for name in columns_of(check.name, compared.expression))
    one_each = f"SELECT any_value(v) AS v, any_value(draw) AS draw FROM ({reached} AND {known}) GROUP BY picture"
    own = _numbers(lake, f"SELECT v FROM ({one_each}) WHERE isfinite(v) ORDER BY draw, v LIMIT {OWN}")
    other = _numbers(lake, canaries.best_texts(lake, plan, compared.expression))
    sign = 1 if compared.keeps_high else -1
    fitted = fit(sign * own, sign * other)
    if fitted is None:
        return None
    found = accepting(sign * other, fitted.other, check.rule.calibrate.wrong)
    threshold = round_threshold(sign * found, compared.keeps_high)
    falls = f"v {'<' if compared.keeps_high else '>'} {threshold!r}::DOUBLE"
    counts = f"SELECT count(*) FILTER (isfinite(v)), count(*) FILTER (isfinite(v) AND {falls}) FROM ({reached})"
    return FrozenThreshold(threshold, *lake.query(counts)[0])


def wrong_pairs(lake: Lake, plan: Plan) -> WrongShare | None:
    """Estimate the share of wrong real texts among the pairs that the last cut keeps; None without real texts."""
    if not plan.recipe.association.is_on or not any("match_similarity" in each.columns for each in plan.image_tables):
        return None
    early = [each.name for each in plan.image_checks if each.stage < Stage.ASSOCIATE]
    untried = ", ".join(map(quoted, (*early, LEFT_OUT, "exact_duplicate", "duplicate", "no_text")))
    tried = (
        "SELECT match_similarity AS v, dropped_by, draw FROM cut_fates c JOIN facts.images i ON i.rowid = c.n "
        f"WHERE dropped_by NOT IN ({untried}) AND match_similarity IS NOT NULL"
    )
    own = _numbers(lake, f"SELECT v FROM ({tried}) ORDER BY draw, v LIMIT {OWN}")
    other = _numbers(lake, canaries.best_texts(lake, plan, "match_similarity"))
    counts = "count(*), count(*) FILTER (dropped_by = ''), min(v) FILTER (dropped_by = '')"
    n, kept, least = lake.query(f"SELECT {counts} FROM ({tried})")[0]
    if plan.candidate_checks or min((own >= least).sum() if kept else 0, len(other)) < FEWEST:
        return WrongShare(n, kept, len(other))
    return WrongShare(n, kept, len(other), *share_of_kept(own, least, other))


def share_of_kept(own: np.ndarray, least: float, other: np.ndarray) -> tuple[float, float, float, float]:
    """Return (pi0, largest share of wrong texts at or above ``least``, its interval's low and high end).

    ``own`` (n,) are similarities of the pictures' own texts, FEWEST of them kept; ``other`` (m,) those of canaries.
    """
    draw = np.random.default_rng(0)
    resampled = [_share(draw.choice(own, len(own)), least, draw.choice(other, len(other)))[1] for _ in range(RESAMPLED)]
    (wrong, share), spread = _share(own, least, other), WIDTH * float(np.std(resampled))
    fitted = fit(own, other)
    mixed = 0.0 if fitted is None else float(fitted.own[own >= least].mean())
    return wrong, share, max(min(mixed, share) - spread, 0.0), min(share + spread, 1.0)


def _share(own: np.ndarray, least: float, other: np.ndarray) -> tuple[float, float]:
    """Return (pi0, the largest share of wrong texts among those of at least ``least``)."""
    low = np.quantile(other, LOWEST)
    wrong = min(float((own <= low).mean() / (other <= low).mean()), 1.0)
    kept = float((own >= least).mean())
    return wrong, min(wrong * float((other >= least).mean()) / kept, 1.0) if kept else 0.0


def fit(own: np.ndarray, other: np.ndarray) -> Mixture | None:
    """Fit the two distributions to own texts and canaries; None for too few values, or too much overlap."""
    if len(own) < FEWEST or len(other) < FEWEST or not np.ptp(np.concatenate([own, other])):
        return None
    fitted = _fit(own, other)
    if not fitted.is_told_apart:
        return None
    return fitted if 1 - fitted.other.mean() >= FITTING else replace(fitted, other=np.ones(len(other)))


def accepting(other: np.ndarray, is_wrong: np.ndarray, share: float) -> float:
    """Return the smallest threshold that lets at most ``share`` of the wrong texts among the canaries through.

    ``is_wrong`` (m,) is the chance that each of ``other`` (m,) is wrong. The threshold lies midway between two values.
    """
    order = np.argsort(other)[::-1]
    values, through = other[order], np.cumsum(is_wrong[order]) / is_wrong.sum()
    first = int(np.searchsorted(through, share, "right"))  # the first canary that must not pass
    stricter = values[:first][values[:first] > values[first]]
    return float((stricter[-1] + values[first]) / 2) if len(stricter) else float(np.nextafter(values[first], np.inf))


def _fit(own: np.ndarray, other: np.ndarray) -> Mixture:
    """Fit both distributions by expectation maximisation."""
    values, n = np.concatenate([own, other]), len(own)
    low, high, spread = float(np.quantile(other, 0.25)), float(np.quantile(own, 0.75)), 0.6 * float(values.std())
    wrong, right, shares = (low, spread), (max(high, low + spread), spread), np.array([0.3, 0.7])
    floor, before, chance = 1e-4 * np.ptp(values), -np.inf, values
    for _ in range(_ITERATIONS):
        prior = np.repeat(np.clip(shares, 1e-4, 1 - 1e-4), [n, len(other)])
        as_wrong = np.log(prior) - np.log(wrong[1]) - ((values - wrong[0]) / wrong[1]) ** 2 / 2
        as_right = np.log1p(-prior) - np.log(right[1]) - ((values - right[0]) / right[1]) ** 2 / 2
        both = np.logaddexp(as_wrong, as_right)
        chance = np.exp(as_wrong - both)
        wrong, right = _moments(values, chance), _moments(values, 1 - chance)
        # A distribution of a few values alone would have any likelihood: neither is half as wide as the other.
        wide = max(wrong[1], right[1], floor) / 2
        wrong, right = (wrong[0], max(wrong[1], wide)), (right[0], max(right[1], wide))
        shares = np.array([chance[:n].mean(), chance[n:].mean()])
        if both.mean() - before < 1e-7:
            break
        before = both.mean()
    return Mixture(wrong, right, chance[:n], chance[n:])


def _moments(values: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the weighted mean and standard deviation."""
    total = max(weights.sum(), 1e-9)
    mean = float((weights * values).sum() / total)
    return mean, float(np.sqrt((weights * (values - mean) ** 2).sum() / total))


def _numbers(lake: Lake, sql: str) -> np.ndarray:
    """Return the one column of a query as float64 (n,)."""
    return lake.table(sql).column(0).to_numpy().astype(np.float64)
