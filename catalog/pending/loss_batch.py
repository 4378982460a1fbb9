"""Draw the batch of pairs for s-CLIPLoss, and read its vectors.

Its pairs are rows of the score's own table by a scorer of their own, without a value: so a removal finds them.
"""

from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores, matches
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.scores import CLIPLOSS

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "cliploss_batch"  # of the batch's scorer


def draw(lake: Lake, plan: Plan, n: int) -> "pa.Table":
    """Return (sha256, content): the ``n`` pictures first by sha256(sha256 || seed), each with its best candidate."""
    best = f"SELECT sha256, arg_min(content, (-similarity, content)) AS content FROM {matches(plan)} GROUP BY sha256"
    return lake.table(f"{best} ORDER BY sha256(sha256 || '{plan.recipe.seed}') LIMIT {n}")


def vectors(lake: Lake, plan: Plan) -> "pa.Table":
    """Return (sha256, content, image_vector, sentence_vector) of the plan's batch, in the order of sha256."""
    return lake.table(
        f"SELECT sha256, content, image_vector, sentence_vector FROM (SELECT sha256, content FROM {CLIPLOSS.table} "
        f"WHERE scorer = '{plan.scorer(NAME)}') "
        f"JOIN {current_scores(plan, 'image_embedding', 'sha256')} USING (sha256) "
        f"JOIN {current_scores(plan, 'sentence_embedding', 'content')} USING (content) ORDER BY sha256"
    )
