"""Collect the texts made for images: captions by every captioner, tags and fused texts."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.chosen_captions import captioner_rows, chosen_rows, rows_by_text, text_digest
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why import (
    Facts,
    Scope,
    rows_of_key,
)
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan
from pairmill.catalog.terms.error import PairmillError

_TEXTS = {
    "captions": "'caption' AS kind, captioner AS \"by\", text, status",
    "tags": "'tags' AS kind, '' AS \"by\", coalesce(nullif(array_to_string(tags, ', '), ''), '(none)') AS text, "
    "'ok' AS status",
    "synthetic": "'synthetic' AS kind, '' AS \"by\", synthetic_text AS text, synthetic_status AS status",
}


def texts_of(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> list[Facts]:
    """Return all captions, tags and fused texts of the image, oldest first.

    ``current``: by a scorer of the dataset. Current captions also have ``by``, the recipe's name of the captioner,
    ``similarity`` if computed, and with several captioners ``chosen``: whether this text is the image's caption, and
    ``score``: the (name, value) by which it was compared, if that is another than the similarity.
    """
    current, by_scorer = set(scope.scorers.values()), _said(lake, sha256, scope, in_home_shard)
    name, compared = _compared(lake, sha256, scope, in_home_shard)
    found = []
    for table, columns in _TEXTS.items():
        rows = rows_of_key(lake, scope, table, f'{columns}, scorer, "commit"', "sha256", sha256, in_home_shard)
        for row in rows:
            scorer = row.pop("scorer")
            of_it = by_scorer.get(scorer, {}) if table == "captions" else {}
            if of_it and row["text"] in compared:
                row["score"] = (name, compared[row["text"]])
            found.append({"current": scorer in current or bool(of_it), **row, **of_it})
    return sorted(found, key=lambda row: (row["commit"], row["kind"]))


def _said(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> dict[str, Facts]:
    """Return, by scorer, the dataset's captioners that described the image: name, similarity, and whether chosen."""
    plan = scope.plan
    if plan is None or not plan.recipe.captioners or "captions" not in scope.filled:
        return {}
    only = f"sha256 = {quoted(sha256)}{in_home_shard}"
    rows = lake.rows(f"SELECT place, similarity FROM ({said(plan, scope.upto, only)})")
    chosen = lake.query(f"SELECT captioner FROM {chosen_rows(plan, 'captions', scope.upto, only)}")
    found = {}
    for row in rows:
        name = plan.recipe.captioners[row["place"]].name
        several = {"chosen": (name,) in chosen} if len(plan.recipe.captioners) > 1 else {}
        scorer = plan.scorer(plan.of_captioner("captions", row["place"]))
        found[scorer] = {"by": name, "similarity": row["similarity"], **several}
    return found


def _compared(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> tuple[str, dict[str, float]]:
    """Return the score that compares captions, and its value for each text; ('', {}) for the CLIP's similarity."""
    plan = scope.plan
    if plan is None or len(plan.recipe.captioners) < 2 or plan.recipe.captions.choose != "best":
        return "", {}
    by = plan.compared_by
    if by.table in CAPTION_TABLES or by.table not in scope.filled:
        return "", {}
    name = plan.recipe.captions.by
    only = f"sha256 = {quoted(sha256)}{in_home_shard}"
    scores = rows_by_text(plan, by.table, scope.upto, only)
    texts = f"SELECT DISTINCT text FROM captions WHERE {only}"
    sql = f"SELECT text, {by.source[name]} FROM ({texts}) c JOIN {scores} s ON s.input_digest = {text_digest('c.text')}"
    return name, dict(lake.query(sql))


def captions_of(lake: Lake, dataset: Dataset) -> str:
    """Return SQL for (sha256, captions) for the version's images; captions are lists in the recipe's order.

    Each element has captioner, text (NULL unless the status is ok), status and similarity (NULL if not computed).

    Raises:
        PairmillError: The dataset's recipe has no captioner.
    """
    plan = plan_of(lake, dataset)
    of_version = f"(SELECT sha256 FROM pairs WHERE {dataset.where})"
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
