"""Cap clusters: keep at most so many images per cluster, those with the smallest sha256(sha256 || seed).

An image counts as passing while it is unknown whether it passes the rules on generated texts.
"""

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.generated import with_first_text
from pairmill.catalog.recipe.plan import Plan

# SQL window over the images of a cluster in hash order. In a lake of 10M images, the chance that two of these 64-bit
# hashes are equal within a cluster is 10^-9.
DRAWN = "PARTITION BY cluster ORDER BY draw"
BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def balance(lake: Lake, plan: Plan) -> int:
    """Rank the images of each cluster into table ``cut_capped``, mark those past the cap, and return the cap.

    Without a cap in the recipe no image is past it, and 0 is returned.

    Creates ``cut_capped(n, cluster, place, size, draw, state, value, past)`` from ``cut_survivors``. ``place`` is the
    rank, from 1, among the ``size`` images of the cluster, regardless of the rules on generated texts, so it does not
    depend on the number of generated texts. ``past``: the cluster was full before this image; always false without a
    cluster.
    """
    if with_first_text(plan):
        late, passed = "state, value", f"count(*) FILTER (coalesce(state, '') = '') OVER ({DRAWN} {BEFORE})"
        images = "cut_survivors LEFT JOIN cut_late USING (n)"
    else:
        late, passed, images = "'' AS state, '' AS value", f"row_number() OVER ({DRAWN}) - 1", "cut_survivors"
    ranked = (
        f"SELECT n, cluster, draw, {late}, row_number() OVER ({DRAWN}) AS place, "
        f"count(*) OVER (PARTITION BY cluster) AS size, {passed} AS passed FROM {images}"
    )
    settings = plan.recipe.balance
    cap = settings.cap or 0
    if settings.target and not cap:
        lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_ranked AS {ranked}")
        ranked, cap = "FROM cut_ranked", _solved(lake, settings.target)
    past = f"cluster IS NOT NULL AND passed >= {cap_of(plan, cap)}" if settings.is_on else "false"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_capped AS SELECT * EXCLUDE (passed), {past} AS past FROM ({ranked}); "
        "DROP TABLE IF EXISTS cut_ranked"
    )
    return cap


def cap_of(plan: Plan, cap: int, cluster: str = "cluster") -> str:
    """Return SQL for the cap of the cluster in column ``cluster``: its own of `balance.fewer`, else ``cap``."""
    own = " ".join(f"WHEN {number} THEN {most}" for number, most in plan.recipe.balance.lower_caps.items())
    return f"(CASE {cluster} {own} ELSE {cap} END)" if own else str(cap)


def _solved(lake: Lake, target: int) -> int:
    """Return the smallest cap that keeps ``target`` images, counting images without a cluster as kept."""
    alive = "SELECT count(*) FILTER (coalesce(state, '') = '') AS alive FROM cut_ranked WHERE cluster IS {} NULL"
    sizes = lake.table(f"SELECT alive, count(*) AS n FROM ({alive.format('NOT')} GROUP BY cluster) GROUP BY alive")
    free = lake.query(alive.format(""))[0][0]
    return smallest_cap(sizes["alive"].to_numpy(), sizes["n"].to_numpy(), target - free)


def smallest_cap(sizes: np.ndarray, counts: np.ndarray, target: float) -> int:
    """Return the smallest cap >= 1 that keeps ``target`` images or more, or keeps all if there are too few.

    Args:
        sizes: Cluster sizes, (n,), >= 0.
        counts: The number of clusters of each size, (n,), >= 0.
        target: The number of images to keep.
    """
    least, most = 1, max(1, int(np.ceil(sizes.max(initial=1))))
    while least < most:
        middle = (least + most) // 2
        if float(np.minimum(sizes, middle) @ counts) >= target:
            most = middle
        else:
            least = middle + 1
    return least
