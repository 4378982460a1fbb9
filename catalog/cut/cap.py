"""Cap clusters: keep at most so many images per cluster, those with the smallest sha256(sha256 || seed).

An image counts as passing while it is unknown whether it passes the rules on generated texts.
"""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.generated import with_first_text
from pairmill.catalog.recipe.plan import Plan

# SQL window over the images of a cluster in hash order. In a lake of 10M images, the chance that two of these 64-bit
# hashes are equal within a cluster is 10^-9.
DRAWN = "PARTITION BY cluster ORDER BY draw"
BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"


def balance(lake: Lake, plan: Plan) -> None:
    """Rank the images of each cluster into table ``cut_capped``, and mark those past the recipe's cap.

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
    cap = plan.recipe.balance.cap
    past = "false" if cap is None else f"cluster IS NOT NULL AND passed >= {cap}"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_capped AS SELECT * EXCLUDE (passed), {past} AS past FROM ({ranked})"
    )
