"""Ask for generated texts in waves: only for pictures that can still be among the first of their cluster.

A cut counts every picture whose texts are unknown as passing. Those of them inside the cap are asked for; when their
texts are there, some fall, others come inside, and the next wave asks for these, until none inside is unknown. What is
kept then, and every decision, is what generating all texts would have given: the pictures before the last kept one of
each cluster are all known, and what lies behind is `balance` either way.

To need few waves, more are asked for at once: as many as make a cluster full at the share that passed so far, and of
what it still lacks twice as many in each wave from the third on. By simulation 4 or 5 waves then make 1 to 5 % more
texts than are needed, where up to 113 would make none too many (infra/SCALE.md).
"""

from dataclasses import dataclass

from pairmill.catalog.cut.cap import BEFORE, smallest_cap
from pairmill.catalog.cut.late import sentences
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan

# A cluster's own share counts from its known pictures on, that of all clusters as this many more.
PRIOR = 10
# Shares are counted in thousandths, as integers: a sum of these is the same in any order.
WHOLE = 1000
# A rule that nearly all fall by is likelier a mistake: asked for by tens of what is lacking, it can be seen in `waves`
# before every picture is.
LEAST = 100


@dataclass(frozen=True)
class WaveOutcome:
    """What became of the pictures that a wave asked for: of how many is everything known now, how many passed the
    rules on generated texts, and how many of these the cut keeps by now."""

    asked: int
    known: int
    passed: int
    kept: int


def unknown(lake: Lake) -> int:
    """Count the pictures inside the cap of the last cut whose generated texts are unknown."""
    return lake.query("SELECT count(*) FROM cut_capped WHERE state IS NULL AND NOT past")[0][0]


def seen(lake: Lake) -> WaveOutcome:
    """Count, by the last cut, what became of the pictures of ``wave_asked``."""
    counts = "count(*), count(state), count(*) FILTER (state = ''), count(*) FILTER (state = '' AND NOT past)"
    return WaveOutcome(*lake.query(f"SELECT {counts} FROM wave_asked LEFT JOIN cut_capped USING (n)")[0])


def select_wave(lake: Lake, plan: Plan, cap: int, wave: int) -> int:
    """Make ``wave_asked(n, sha256, sentence)`` of wave number ``wave`` (from 1) out of the last cut, whose cap is
    ``cap``; return how many they are."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE wave_wanted AS {in_reach(lake, plan, cap, wave)}")
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE wave_asked AS SELECT w.n, i.sha256, coalesce(t.text, '') AS sentence "
        "FROM wave_wanted w JOIN facts.images i ON i.rowid = w.n "
        f"LEFT JOIN ({sentences(plan, 'wave_wanted')}) t ON t.n = w.n"
    )
    lake.execute("DROP TABLE wave_wanted")
    return lake.query("SELECT count(*) FROM wave_asked")[0][0]


def in_reach(lake: Lake, plan: Plan, cap: int, wave: int) -> str:
    """SQL of the ``n`` of the unknown pictures that are expected to make their cluster full, and those before them."""
    excess = 2 ** max(0, wave - 2) - 1
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE wave_rates AS WITH known AS (SELECT cluster, "
        "count(*) FILTER (state = '') AS passed, count(state) AS known, "
        "count(*) FILTER (state IS NULL AND NOT past) AS lacking FROM cut_capped WHERE cluster IS NOT NULL "
        "GROUP BY cluster), "
        "every AS (SELECT coalesce(sum(passed) / nullif(sum(known), 0), 1) AS rate FROM known) "
        "SELECT cluster, lacking, "
        f"greatest({LEAST}, CAST(ceil({WHOLE} * (passed + {PRIOR} * rate) / (known + {PRIOR})) AS BIGINT)) AS rate "
        "FROM known, every"
    )
    weight = f"CASE WHEN state IS NULL THEN rate WHEN state = '' THEN {WHOLE} ELSE 0 END"
    rows = (
        f"(SELECT n, cluster, place, state, lacking, {weight} AS weight FROM cut_capped "
        "LEFT JOIN wave_rates USING (cluster))"
    )
    enough = max(cap, _expected_cap(lake, plan, rows)) * WHOLE
    return (
        "SELECT n FROM (SELECT n, cluster, state, lacking, sum(weight) OVER (PARTITION BY cluster ORDER BY place "
        f"{BEFORE}) AS expected FROM {rows}) "
        f"WHERE state IS NULL AND (cluster IS NULL OR coalesce(expected, 0) < {enough} + {excess * WHOLE} * lacking)"
    )


def _expected_cap(lake: Lake, plan: Plan, rows: str) -> int:
    """Return the cap that reaches the recipe's target should pictures go on to pass as they did; 1 without a target."""
    if not plan.recipe.balance.target:
        return 1
    sizes = lake.table(
        f"SELECT size, count(*) AS n FROM (SELECT sum(weight) / {WHOLE} AS size FROM {rows} WHERE cluster IS NOT NULL "
        "GROUP BY cluster) GROUP BY size"
    )
    return smallest_cap(sizes["size"].to_numpy(), sizes["n"].to_numpy(), plan.recipe.balance.target)
