"""List images whose text-based scores are missing or stale: another scorer, or another digest of the input texts."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.eligible import current_scores, image_rows, matches
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.pending.index_ranges import score_paths
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import items_by_shard, payload_paths
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Score, Stage

# Columns of ``synthetic`` that hold the model's answer.
SYNTHETIC = ("prompt", "synthetic_text", "synthetic_status", "n_tokens", "seconds", "finish_reason",
             "prompt_tokens", "retries", "synthetic_unsupported")  # fmt: skip
# Inputs that identify the request and the row to replace.
REPLACED = ("input_digests", "before")


def pending_similarity(lake: Lake, plan: Plan) -> Iterator[list[WorkItem]]:
    """List images whose best match or alt texts differ from those that ``image_similarity`` was computed from."""
    wanted = f"""WITH eligible AS (SELECT sha256, list(DISTINCT trim(alt_text) ORDER BY trim(alt_text))
                FILTER (trim(coalesce(alt_text, '')) <> '') AS alts
            FROM ({image_rows(plan, Stage.ASSOCIATE)}) WHERE dropped_by = '' GROUP BY sha256),
        best AS (SELECT sha256, max(similarity) AS similarity FROM {matches(plan)} GROUP BY sha256)
        SELECT v.shard, v.sha256, coalesce(e.alts, []) AS alt_texts, b.similarity AS match_similarity,
            left(sha256(coalesce(CAST(b.similarity AS VARCHAR), '') || chr(31)
                || array_to_string(coalesce(e.alts, []), chr(31))), 32) AS digest
        FROM {current_scores(plan, "image_embedding", "sha256")} v JOIN eligible e ON e.sha256 = v.sha256
        LEFT JOIN best b ON b.sha256 = v.sha256 WHERE v.image_vector IS NOT NULL"""
    inputs = ("alt_texts", "match_similarity", *REPLACED)
    return items_by_shard(lake, stale_rows(plan, "image_similarity", wanted), _vector_files(lake, plan), inputs)


def pending_in_wave(
    lake: Lake, plan: Plan, table: str, scorer: str, of_vectors: bool = False, asked: str = "wave_asked"
) -> Iterator[list[WorkItem]]:
    """List the images of a wave that lack a row of ``scorer`` (a digest) in ``table``, by home shard.

    The items read the files of bytes, or of vectors. ``asked`` is SQL of the images, by default the whole wave.
    """
    sql = f"""SELECT c.shard, c.sha256 AS key FROM image_content c SEMI JOIN {asked} k ON k.sha256 = c.sha256
        ANTI JOIN (SELECT sha256 FROM {table} WHERE scorer = '{scorer}') s ON s.sha256 = c.sha256"""
    return items_by_shard(
        lake, sql, _vector_files(lake, plan) if of_vectors else partial(payload_paths, lake, "payloads")
    )


def pending_text_similarity(lake: Lake, plan: Plan, score: Score, texts: str, column: str) -> Iterator[list[WorkItem]]:
    """List images of the wave whose text in ``column`` of ``texts`` changed since ``score`` was computed."""
    wanted = f"""SELECT v.shard, v.sha256, c.{column} AS texts, {text_digest(f"c.{column}")} AS digest
        FROM {current_scores(plan, "image_embedding", "sha256")} v
        JOIN {current_scores(plan, texts, "sha256")} c ON c.sha256 = v.sha256
        SEMI JOIN wave_asked k ON k.sha256 = v.sha256"""
    return items_by_shard(lake, stale_rows(plan, score.table, wanted), _vector_files(lake, plan), ("texts", *REPLACED))


def pending_fusion(lake: Lake, plan: Plan, alike: Sequence[str] = ()) -> Iterator[list[WorkItem]]:
    """List images of the wave whose caption, tags or sentence differ from those that ``synthetic`` was fused from.

    Images that fail a rule on known texts (``cut_late``) are left out. The input ``known`` is the cached answer for the
    same inputs, by the plan's scorer (if two recipes alternate) or by a scorer of ``alike``, whose model gets the same
    request (`catalog.pending.answer_cache`).
    """
    by = ", ".join(f"'{digest}'" for digest in (plan.scorer("synthetic"), *alike))
    answer = ", ".join(f"'{name}': s.{name}" for name in SYNTHETIC)
    sql = f"""WITH wanted AS (SELECT p.shard, a.sha256, coalesce(x.text, '') AS captions,
                coalesce(t.tags, []) AS tags, a.sentence AS sentences
            FROM wave_asked a JOIN image_content p ON p.sha256 = a.sha256
            LEFT JOIN {current_scores(plan, "captions", "sha256")} x ON x.sha256 = a.sha256 AND x.status = 'ok'
            LEFT JOIN {current_scores(plan, "tags", "sha256")} t ON t.sha256 = a.sha256
            ANTI JOIN (SELECT n FROM cut_late WHERE state <> '') d ON d.n = a.n),
        digested AS (SELECT *, {fusion_digest("captions", "tags", "sentences")} AS digest FROM wanted),
        other AS ({stale_rows(plan, "synthetic", "FROM digested")}),
        answers AS (SELECT s.sha256, arg_max({{{answer}}}, s."commit") AS known FROM synthetic s
            JOIN other ON other.key = s.sha256 AND other.input_digests = s.input_digest
            WHERE s.scorer IN ({by}) GROUP BY s.sha256)
        SELECT w.*, k.known FROM other w LEFT JOIN answers k ON k.sha256 = w.key"""
    inputs = ("captions", "tags", "sentences", *REPLACED, "known")
    return items_by_shard(lake, sql, partial(payload_paths, lake, "payloads"), inputs)


def stale_rows(plan: Plan, table: str, wanted: str, current: str = "", same: str = "") -> str:
    """Return SQL, for `items_by_shard`, of the rows of ``wanted`` whose digest is not that of the row in ``table``.

    ``wanted`` is a query of shard, sha256, digest and inputs. ``current`` is SQL of the current rows of a table with
    several rows an image, ``same`` the further condition by which one of them is the row of ``w``.
    """
    return f"""SELECT w.* EXCLUDE (digest, sha256), w.sha256 AS key, w.digest AS input_digests,
        coalesce(s."commit", -1) AS before FROM ({wanted}) w
        LEFT JOIN {current or current_scores(plan, table, "sha256")} s ON s.sha256 = w.sha256{same}
        WHERE s.input_digest IS DISTINCT FROM w.digest"""


def _vector_files(lake: Lake, plan: Plan) -> Callable[[list[str]], dict[str, tuple[str, ...]]]:
    """Return the function from shards to the files of their images' vectors."""
    return partial(score_paths, lake, "image_embedding", plan.scorer("image_embedding"))
