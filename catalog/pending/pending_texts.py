"""List images whose text-based scores are missing or stale: another scorer, or another digest of the input texts.

All functions yield rounds of work items (worklist.ROUND keys), at least one round, possibly empty.
"""

from collections.abc import Iterator, Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.eligible import current_scores, image_rows, matches
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.pending.index_ranges import score_paths
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import by_rounds, payload_paths
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Score, Stage

# Columns of ``synthetic`` that hold the model's answer.
SYNTHETIC = ("prompt", "synthetic_text", "synthetic_status", "n_tokens", "seconds", "finish_reason",
             "prompt_tokens", "retries", "synthetic_unsupported")  # fmt: skip


def pending_similarity(lake: Lake, plan: Plan) -> Iterator[list[WorkItem]]:
    """Yield images whose best match or alt texts differ from those that ``image_similarity`` was computed from."""
    sql = f"""WITH eligible AS (SELECT sha256, list(DISTINCT trim(alt_text) ORDER BY trim(alt_text))
                FILTER (trim(coalesce(alt_text, '')) <> '') AS alts
            FROM ({image_rows(plan, Stage.ASSOCIATE)}) WHERE dropped_by = '' GROUP BY sha256),
        best AS (SELECT sha256, max(similarity) AS similarity FROM {matches(plan)} GROUP BY sha256),
        wanted AS (SELECT v.shard, v.sha256, coalesce(e.alts, []) AS alts, b.similarity,
                left(sha256(coalesce(CAST(b.similarity AS VARCHAR), '') || chr(31)
                    || array_to_string(coalesce(e.alts, []), chr(31))), 32) AS digest
            FROM {current_scores(plan, "image_embedding", "sha256")} v JOIN eligible e ON e.sha256 = v.sha256
            LEFT JOIN best b ON b.sha256 = v.sha256 WHERE v.image_vector IS NOT NULL)
        SELECT w.shard, list(w.sha256 ORDER BY w.sha256) AS keys, list(w.alts ORDER BY w.sha256) AS alts,
            list(w.similarity ORDER BY w.sha256) AS similarity, list(w.digest ORDER BY w.sha256) AS digests,
            list(coalesce(s."commit", -1) ORDER BY w.sha256) AS before
        FROM wanted w LEFT JOIN {current_scores(plan, "image_similarity", "sha256")} s ON s.sha256 = w.sha256
        WHERE s.input_digest IS DISTINCT FROM w.digest GROUP BY w.shard"""
    for rows in by_rounds(lake, sql):
        files = score_paths(lake, "image_embedding", plan.scorer("image_embedding"), [row[0] for row in rows])
        yield [
            WorkItem(shard, tuple(keys), files[shard], inputs={
                "alt_texts": alts, "match_similarity": similarity, "input_digests": tuple(digests), "before": before})
            for shard, keys, alts, similarity, digests, before in rows
        ]  # fmt: skip


def pending_in_wave(
    lake: Lake, plan: Plan, table: str, scorer: str, payload: str = "payloads", asked: str = "wave_asked"
) -> Iterator[list[WorkItem]]:
    """Yield the images of a wave that lack a row of ``scorer`` in ``table``, with the files of their bytes.

    Args:
        lake: The lake to query.
        plan: The plan of the run.
        table: The score table.
        scorer: The digest of the scorer.
        payload: 'payloads' for the files of bytes, or 'image_embedding' for the files of vectors.
        asked: SQL of the images, by default the whole wave.

    Yields:
        Work items by home shard.
    """
    sql = f"""SELECT c.shard, list(c.sha256 ORDER BY c.sha256) AS keys FROM image_content c
        SEMI JOIN {asked} k ON k.sha256 = c.sha256
        ANTI JOIN (SELECT sha256 FROM {table} WHERE scorer = '{scorer}') s ON s.sha256 = c.sha256 GROUP BY c.shard"""
    for rows in by_rounds(lake, sql):
        shards = [row[0] for row in rows]
        if payload == "payloads":
            files = payload_paths(lake, payload, shards)
        else:
            files = score_paths(lake, payload, plan.scorer(payload), shards)
        # Files are missing only in a survey (`pairmill run --dry-run`), for vectors that a tagger has yet to compute.
        yield [WorkItem(shard, tuple(keys), files.get(shard, ())) for shard, keys in rows]


def pending_text_similarity(lake: Lake, plan: Plan, score: Score, texts: str, column: str) -> Iterator[list[WorkItem]]:
    """Yield images of the wave whose text in ``column`` of ``texts`` changed since ``score`` was computed."""
    sql = f"""WITH wanted AS (SELECT v.shard, v.sha256, c.{column} AS text, {text_digest(f"c.{column}")} AS digest
            FROM {current_scores(plan, "image_embedding", "sha256")} v
            JOIN {current_scores(plan, texts, "sha256")} c ON c.sha256 = v.sha256
            SEMI JOIN wave_asked k ON k.sha256 = v.sha256)
        SELECT w.shard, list(w.sha256 ORDER BY w.sha256) AS keys, list(w.text ORDER BY w.sha256) AS texts,
            list(w.digest ORDER BY w.sha256) AS digests, list(coalesce(s."commit", -1) ORDER BY w.sha256) AS before
        FROM wanted w LEFT JOIN {current_scores(plan, score.table, "sha256")} s ON s.sha256 = w.sha256
        WHERE s.input_digest IS DISTINCT FROM w.digest GROUP BY w.shard"""
    for rows in by_rounds(lake, sql):
        files = score_paths(lake, "image_embedding", plan.scorer("image_embedding"), [row[0] for row in rows])
        yield [
            WorkItem(shard, tuple(keys), files[shard], inputs={
                "texts": texts, "input_digests": tuple(digests), "before": before})
            for shard, keys, texts, digests, before in rows
        ]  # fmt: skip


def pending_fusion(lake: Lake, plan: Plan, alike: Sequence[str] = ()) -> Iterator[list[WorkItem]]:
    """Yield images of the wave whose caption, tags or sentence differ from those that ``synthetic`` was fused from.

    Images that fail a rule on known texts (``cut_late``) are left out. The input ``known`` is the cached answer for the
    same inputs, by the plan's scorer (if two recipes alternate) or by a scorer of ``alike``, whose model gets the same
    request (`catalog.pending.answer_cache`).
    """
    by = ", ".join(f"'{digest}'" for digest in (plan.scorer("synthetic"), *alike))
    answer = ", ".join(f"'{name}': s.{name}" for name in SYNTHETIC)
    sql = f"""WITH wanted AS (SELECT p.shard, a.sha256, coalesce(x.text, '') AS caption,
                coalesce(t.tags, []) AS tags, a.sentence
            FROM wave_asked a JOIN image_content p ON p.sha256 = a.sha256
            LEFT JOIN {current_scores(plan, "captions", "sha256")} x ON x.sha256 = a.sha256 AND x.status = 'ok'
            LEFT JOIN {current_scores(plan, "tags", "sha256")} t ON t.sha256 = a.sha256
            ANTI JOIN (SELECT n FROM cut_late WHERE state <> '') d ON d.n = a.n),
        digested AS (SELECT *, {fusion_digest("caption", "tags", "sentence")} AS digest FROM wanted),
        other AS (SELECT w.*, coalesce(o."commit", -1) AS before
            FROM digested w LEFT JOIN {current_scores(plan, "synthetic", "sha256")} o ON o.sha256 = w.sha256
            WHERE o.input_digest IS DISTINCT FROM w.digest),
        known AS (SELECT s.sha256, arg_max({{{answer}}}, s."commit") AS answer FROM synthetic s
            JOIN other ON other.sha256 = s.sha256 AND other.digest = s.input_digest
            WHERE s.scorer IN ({by}) GROUP BY s.sha256)
        SELECT w.shard, list(w.sha256 ORDER BY w.sha256) AS keys, list(w.caption ORDER BY w.sha256) AS captions,
            list(w.tags ORDER BY w.sha256) AS tags, list(w.sentence ORDER BY w.sha256) AS sentences,
            list(w.digest ORDER BY w.sha256) AS digests, list(w.before ORDER BY w.sha256) AS before,
            list(k.answer ORDER BY w.sha256) AS known
        FROM other w LEFT JOIN known k ON k.sha256 = w.sha256 GROUP BY w.shard"""
    for rows in by_rounds(lake, sql):
        files = payload_paths(lake, "payloads", [row[0] for row in rows])
        yield [
            WorkItem(shard, tuple(keys), files[shard], inputs={
                "captions": captions, "tags": tags, "sentences": sentences, "input_digests": tuple(digests),
                "before": before, "known": known})
            for shard, keys, captions, tags, sentences, digests, before, known in rows
        ]  # fmt: skip
