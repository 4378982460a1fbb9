"""List the pairs of an image and a text that a score of pairs lacks: candidate sentences, captions, fused texts."""

from collections.abc import Iterator
from functools import partial

from pairmill.catalog.cut import facts
from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.cut.keepers import with_keepers
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import rows_by_text, text_digest
from pairmill.catalog.pending.eligible import current_scores, passed
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.pending.worklist import REPLACED, items_by_shard, stale_rows
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Score

# A round holds all texts of its pairs, up to 12 of an image.
_PAIRS = "sum(len(texts))::BIGINT"


def pending_candidates(lake: Lake, plan: Plan, score: Score) -> Iterator[list[WorkItem]]:
    """Yield work items for a score of (image, candidate sentence): images with their sentences that lack the score.

    Only images that pass the early rules, and candidates that pass the rules on sentences, themselves or by a sentence
    of their duplicate group. Each list holds the items of one round.
    """
    facts.attach(lake, plan)
    sql = f"""WITH wanted AS (SELECT i.sha256, c.content, c.text
            FROM (SELECT picture, unnest(sentences) AS sentence FROM facts.matches) m
            JOIN (SELECT DISTINCT picture, sha256 FROM facts.images WHERE {passed(image_checks(plan))}) i
            ON i.picture = m.picture SEMI JOIN {with_keepers(plan)} u ON u.sentence = m.sentence
            JOIN facts.contents k ON k.rowid = m.sentence JOIN sentence_content c ON facts.key_of(c.content) = k.key),
        lacking AS (SELECT sha256, list(content ORDER BY content) AS contents, list(text ORDER BY content) AS texts
            FROM wanted ANTI JOIN (SELECT sha256, content FROM {score.table}
                WHERE scorer = '{plan.scorer(score.table)}') USING (sha256, content) GROUP BY sha256)
        SELECT p.shard, l.sha256 AS key, contents, texts,
            {text_digest("array_to_string(contents, ' ')")} AS input_digests
        FROM lacking l JOIN image_content p ON p.sha256 = l.sha256"""
    inputs, files = ("contents", "texts", "input_digests"), partial(paths_by_shard, lake, "payloads")
    yield from items_by_shard(lake, sql, files, inputs, (score.table,), _PAIRS)


def pending_texts_of_wave(
    lake: Lake, plan: Plan, score: Score, texts: str, column: str, beside_others: bool = False
) -> Iterator[list[WorkItem]]:
    """Yield work items for ``score``: images of the wave whose current text, ``texts.column``, has no row of it yet.

    ``beside_others``: an image has several texts, each with its own row of ``score``, so a row is looked up by the
    text's digest; by default an image has one row, which is pending when its text changes.
    """
    rows, same = "", ""
    if beside_others:
        rows, same = rows_by_text(plan, score.table), " AND s.input_digest = w.digest"
    wanted = f"""SELECT p.shard, p.sha256, [coalesce(c.{column}, '')] AS texts, {text_digest(f"c.{column}")} AS digest
        FROM image_content p JOIN {current_scores(plan, texts, "sha256")} c ON c.sha256 = p.sha256
        SEMI JOIN wave_asked k ON k.sha256 = p.sha256"""
    sql, files = stale_rows(plan, score.table, wanted, rows, same), partial(paths_by_shard, lake, "payloads")
    return items_by_shard(lake, sql, files, ("texts", *REPLACED), (score.table,))
