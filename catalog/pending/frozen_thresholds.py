"""Compute the thresholds of calibrated rules from the share that each must drop, and freeze them in the lake.

Those from the share of wrong texts that a rule may accept are computed by `catalog.cut.pair_fit`.

A threshold is keyed by the rule's text, its share and the digests of the scorers that the rule reads; it is recomputed
if one of these changes. It stays the same when the lake grows or when earlier rules change.

Computing one reads its score and those of earlier rules once, as a cut does. Values are grouped before ranking (scores
have 4 decimals), and DuckDB spills.
"""

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import items_before_rule
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.recipe.predicate import normal_form
from pairmill.catalog.recipe.thresholds import compared_score
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.score import Stage

# Significant digits of a threshold. Up to 9, text and DOUBLE are equal; scores below 100,000 keep their 4 decimals.
DIGITS = 9
# Images that the current cut keeps: the first wave made texts for these while a rule had no threshold.
KEPT = "(SELECT image_id, sha256 FROM cut_images WHERE dropped_by = '')"


@dataclass(frozen=True)
class FrozenThreshold:
    """A frozen threshold; the rule dropped ``n_dropped`` of the ``n`` items with a value that reached it."""

    threshold: float
    n: int
    n_dropped: int


def unset(plan: Plan, kind: str, stage: Stage | None) -> list[Check]:
    """Return the calibrated rules on ``kind`` without a threshold, of stages before ``stage`` (None: all), in order."""
    return [each for each in plan.checks(kind) if each.lacks_threshold and (stage is None or each.stage < stage)]


def digest(plan: Plan, kind: str, check: Check) -> str:
    """Return the key under which the threshold of a calibrated rule is stored, 32 hex digits."""
    chosen = plan.recipe.captions_chosen_by() if check.stage >= Stage.CAPTION else ()
    asked = check.rule.calibrate
    assert asked is not None
    share = repr(asked.drop) if asked.drop is not None else f"wrong {asked.wrong!r}"
    return text_id(kind, _unset_rule(check), share, *_scorers(plan, check), *chosen)


def frozen(lake: Lake, digest: str) -> FrozenThreshold | None:
    """Return the threshold stored under the key `digest`; None if no run has measured it yet."""
    sql = 'SELECT threshold, n, n_dropped FROM thresholds WHERE digest = ? ORDER BY "commit" LIMIT 1'
    return next((FrozenThreshold(*row) for row in lake.query(sql, (digest,))), None)


def by_other_scorers(lake: Lake, kind: str, check: Check) -> float | None:
    """Return the newest stored threshold of the same rule and share, measured by any scorers; None without one."""
    sql = 'SELECT threshold FROM thresholds WHERE kind = ? AND rule = ? AND "drop" = ? ORDER BY "commit" DESC LIMIT 1'
    return next((row[0] for row in lake.query(sql, (kind, _unset_rule(check), _stored_share(check)))), None)


def measure_threshold(lake: Lake, plan: Plan, kind: str, check: Check, among: str = "") -> FrozenThreshold | None:
    """Compute the threshold that drops at most the requested share of the items that reach the rule.

    Only items with a finite value count; None if there are none. Equal values and the rounding to 9 digits may make the
    threshold drop less. ``among`` as in `catalog.pending.eligible.items_before_rule`.
    """
    assert check.rule.calibrate is not None and check.rule.calibrate.drop is not None
    asked = compared_score(check.name, check.rule.keep)
    value = f"try_cast(({asked.expression}) AS DOUBLE)"
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE threshold_values AS SELECT v, count(*) AS n FROM
        (SELECT {value} AS v FROM ({items_before_rule(plan, kind, check, among)})) WHERE isfinite(v) GROUP BY v""")
    if not (n := lake.query("SELECT coalesce(sum(n), 0)::BIGINT FROM threshold_values")[0][0]):
        return None
    most = int(Decimal(repr(check.rule.calibrate.drop)) * n)
    outermost = "ASC" if asked.keeps_high else "DESC"
    fewer = f"(sum(n) OVER (ORDER BY v {outermost}) - n)"
    inner = f"SELECT v FROM threshold_values QUALIFY {fewer} <= {most} ORDER BY {fewer} DESC LIMIT 1"
    threshold = round_threshold(lake.query(inner)[0][0], asked.keeps_high)
    falls = f"v {'<' if asked.keeps_high else '>'} {threshold!r}::DOUBLE"
    dropped = lake.query(f"SELECT coalesce(sum(n), 0)::BIGINT FROM threshold_values WHERE {falls}")[0][0]
    lake.execute("DROP TABLE threshold_values")
    return FrozenThreshold(threshold, n, dropped)


def round_threshold(value: float, keeps_high: bool) -> float:
    """Round a threshold to DIGITS digits so that an item at it still passes: a lower limit down, an upper limit up."""
    context = Context(prec=DIGITS, rounding=ROUND_FLOOR if keeps_high else ROUND_CEILING)
    return float(context.create_decimal(Decimal(repr(value)))) + 0.0  # avoids -0.0


def freeze(lake: Lake, plan: Plan, kind: str, check: Check, found: FrozenThreshold, run_id: str, commit: int) -> None:
    """Insert the row of ``thresholds`` for the measured threshold ``found``."""
    scorers = [scorer for scorer in _scorers(plan, check) if scorer]
    numbers = (found.threshold, found.n, found.n_dropped)
    row = (digest(plan, kind, check), kind, _unset_rule(check), _stored_share(check), scorers, *numbers, run_id, commit)
    lake.retrying(lambda: lake.execute(f"INSERT INTO thresholds VALUES ({', '.join('?' * len(row))})", row))


def _scorers(plan: Plan, check: Check) -> list[str]:
    """Return the digests of all scorers whose rows the rule reads; for wrong texts those of the vectors alone."""
    if check.rule.calibrate is not None and check.rule.calibrate.wrong is not None:
        return [plan.scorer("image_embedding"), plan.scorer("sentence_embedding")]
    return [scorer for table in check.tables for scorer in plan.made_by(table)]


def _unset_rule(check: Check) -> str:
    """Return the rule's predicate in normal form, as if its threshold was not yet set."""
    assert check.rule.calibrate is not None
    unset = check.rule.model_copy(update={"calibrate": check.rule.calibrate.model_copy(update={"threshold": None})})
    return normal_form(check.name, unset.predicate)


def _stored_share(check: Check) -> float:
    """Return the requested share as the column ``drop`` has it: negative if it is of wrong texts to accept."""
    asked = check.rule.calibrate
    assert asked is not None
    return asked.drop if asked.drop is not None else -(asked.wrong or 0)
