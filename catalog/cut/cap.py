"""Cap: keep of each cluster of pictures at most so many, those with the smallest sha256(sha256 || seed).

A picture of which nobody knows yet whether it passes the rules on generated texts counts as one that does.
"""

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan

# SQL of a window over the pictures of a cluster in their order. Of its 64 bits two are equal in one of the clusters of
# 10M images once in 10^9 lakes.
DRAWN = "PARTITION BY cluster ORDER BY draw"
BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def balance(lake: Lake, plan: Plan) -> int:
    """Make ``cut_capped(n, cluster, place, size, draw, state, value, past)`` of ``cut_survivors``; return the cap.

    ``place`` from 1 among the ``size`` pictures of the cluster, whatever the rules on generated texts say of them: so
    it does not depend on how many texts there are. ``past``: the cluster was full before this picture. Of those without
    a cluster none is.
    """
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_ranked AS SELECT s.n, cluster, draw, state, value, "
        f"row_number() OVER ({DRAWN}) AS place, count(*) OVER (PARTITION BY cluster) AS size, "
        f"count(*) FILTER (coalesce(state, '') = '') OVER ({DRAWN} {BEFORE}) AS passed "
        "FROM cut_survivors s LEFT JOIN cut_late l ON l.n = s.n"
    )
    cap = plan.recipe.balance.cap or _solved(lake, plan.recipe.balance.target or 0)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_capped AS SELECT * EXCLUDE (passed), "
        f"cluster IS NOT NULL AND passed >= {cap} AS past FROM cut_ranked"
    )
    lake.execute("DROP TABLE cut_ranked")
    return cap


def _solved(lake: Lake, target: int) -> int:
    alive = "SELECT count(*) FILTER (coalesce(state, '') = '') AS alive FROM cut_ranked WHERE cluster IS {} NULL"
    sizes = lake.table(f"SELECT alive, count(*) AS n FROM ({alive.format('NOT')} GROUP BY cluster) GROUP BY alive")
    free = lake.query(alive.format(""))[0][0]
    return smallest_cap(sizes["alive"].to_numpy(), sizes["n"].to_numpy(), target - free)


def smallest_cap(sizes: np.ndarray, counts: np.ndarray, target: float) -> int:
    """Return the smallest cap >= 1 that keeps ``target`` pictures or more: of ``counts`` clusters of each of ``sizes``
    (both (n,), numbers >= 0) at most so many. Where there are too few of them, the smallest that keeps all."""
    least, most = 1, max(1, int(np.ceil(sizes.max(initial=1))))
    while least < most:
        middle = (least + most) // 2
        if float(np.minimum(sizes, middle) @ counts) >= target:
            most = middle
        else:
            least = middle + 1
    return least
