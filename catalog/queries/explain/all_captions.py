"""Read the captions of a version's images by every captioner, not only the chosen caption."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.chosen_captions import captioner_rows
from pairmill.catalog.pending.scored_rows import text_digest
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError


def captions_of(lake: Lake, dataset: Dataset) -> str:
    """Return SQL for (sha256, captions) for the version's images; captions are lists in the recipe's order.

    Each element has captioner, text (NULL unless the status is ok), status and similarity (NULL if not computed).

    Raises:
        PairmillError: The dataset's recipe has no captioner.
    """
    plan = plan_of(lake, dataset)
    of_version = f"(SELECT sha256 FROM pairs WHERE dataset = {quoted(dataset.name)} AND version = {dataset.version})"
    rows = said(plan, dataset.commit, f"sha256 IN {of_version}")
    if not rows:
        raise PairmillError(f"dataset '{dataset}' has no captions: its recipe has no captioner. Leave `captions` out.")
    one = "{'captioner': captioner, 'text': text, 'status': status, 'similarity': similarity}"
    return f"(SELECT sha256, list({one} ORDER BY place) AS captions FROM ({rows}) GROUP BY sha256)"


def said(plan: Plan, upto: int, only: str) -> str:
    """Return SQL for (sha256, place, captioner, text, status, similarity) of all captions by the plan's captioners.

    Restricted to commits up to ``upto`` and the condition ``only``; '' without captioners.
    """
    known = [place for place in range(len(plan.recipe.captioners)) if plan.scorer(plan.of_captioner("captions", place))]
    return " UNION ALL ".join(
        f"SELECT c.sha256, {place} AS place, captioner, CASE WHEN status = 'ok' THEN text END AS text, status, "
        f"caption_similarity AS similarity FROM {captioner_rows(plan, place, 'captions', upto, only)} c "
        f"LEFT JOIN {captioner_rows(plan, place, 'caption_similarity', upto, only)} s "
        f"ON s.sha256 = c.sha256 AND s.input_digest = {text_digest('c.text')}"
        for place in known
    )
