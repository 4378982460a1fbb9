"""Write SQL for the valid rows of a score, and for an image's caption and its similarity.

An image's caption is that of the captioner that the recipe's `captions.choose` selects:

- first: the first captioner;
- best: of the texts with status ok, the most similar to the image by CLIP, or by the recipe's `captions.by`, on a tie
  the earlier captioner's; if no text is ok, the first captioner's. There is no row until every captioner's text and its
  scores exist;
- fill (`captions.own: fill`): the caption that came along with the image, else the captioner's;
- mixture: a captioner drawn for each image with equal chances: the one with the largest hash of image, seed and
  captioner's name. So adding or removing a captioner changes only the images that it gains or had (rendezvous hashing).
  The hash differs from the cap's, or every kept image would have the same captioner.
"""

from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan


def chosen_rows(plan: Plan, table: str, upto: int | None = None, only: str = "") -> str:
    """Return SQL for each image's row of ``table``, one of `chosen_tables`, for the caption that the recipe selects.

    At most one row per image; ``captioner`` has its captioner's name. ``upto`` and ``only`` as in `scored_rows`.
    """
    if (choose := plan.recipe.captions.way) == "fill":
        own, made = (captioner_rows(plan, place, table, upto, only) for place in plan.compared_captioners)
        has_own = with_own(plan)
        return f"(SELECT * FROM {own} WHERE {has_own} UNION ALL SELECT * FROM {made} WHERE NOT {has_own})"
    if choose == "best":
        return _best(plan, table, upto, only)
    if choose == "mixture":
        drawn = _draw_captioner(plan)
        rows = (
            f"SELECT * FROM {captioner_rows(plan, place, table, upto, only)} WHERE {drawn} = {place}"
            for place in plan.compared_captioners
        )
        return f"({' UNION ALL '.join(rows)})"
    return captioner_rows(plan, 0, table, upto, only)


def chosen_tables(plan: Plan) -> tuple[str, ...]:
    """Return the tables with rows per captioner: CAPTION_TABLES, and the score by which `best` compares captions."""
    compared = [plan.compared_by.table] if plan.recipe.captions.way == "best" else []
    return tuple(dict.fromkeys((*CAPTION_TABLES, *compared)))


def rows_by_text(plan: Plan, table: str, upto: int | None = None, only: str = "") -> str:
    """Return SQL for the newest row of a score of captions for each (image, caption text) that its scorer has scored.

    One scorer scores the captions of several captioners, so an image has a current row for each caption.
    """
    newest = "QUALIFY row_number() OVER (PARTITION BY sha256, input_digest ORDER BY commit DESC) = 1"
    return f"(SELECT * FROM {table}{_of_scorer(plan, table, upto, only)} {newest})"


def captioner_rows(plan: Plan, place: int, table: str, upto: int | None = None, only: str = "") -> str:
    """Return SQL for the rows of ``table``, one of CAPTION_TABLES, by the captioner at index ``place`` (from 0)."""
    rows = scored_rows(plan.alone(place), table, "sha256", upto, only)
    if table != "captions":
        return rows
    if plan.recipe.captioned_by[place].name == OWN:  # has a further row where the caption has changed
        return f"(SELECT * FROM {rows} QUALIFY row_number() OVER (PARTITION BY sha256 ORDER BY commit DESC) = 1)"
    # The same model and prompt may have written the row under another name.
    return f"(SELECT * REPLACE ('{plan.recipe.captioned_by[place].name}' AS captioner) FROM {rows})"


def wave_of_captioner(plan: Plan, place: int) -> str:
    """Return SQL for the images of the current wave that the captioner at index ``place`` (from 0) must describe."""
    if plan.recipe.captions.way == "fill":
        return f"(SELECT * FROM wave_asked WHERE NOT {with_own(plan)})"
    if plan.recipe.captions.choose != "mixture":
        return "wave_asked"
    return f"(SELECT * FROM wave_asked WHERE {_draw_captioner(plan)} = {place})"


def asked_share(plan: Plan) -> float:
    """Return the share (0 to 1] of a wave's images that each captioner describes."""
    return 1 / len(plan.recipe.captioners) if plan.recipe.captions.choose == "mixture" else 1.0


def with_own(plan: Plan) -> str:
    """Return the SQL condition that the image ``sha256`` has a caption that came along with it."""
    return f"sha256 IN (SELECT sha256 FROM {captioner_rows(plan, 0, 'captions')} WHERE status = 'ok')"


def _draw_captioner(plan: Plan) -> str:
    """Return SQL for the index of the captioner drawn for ``sha256``."""
    key = "sha256(concat_ws(chr(31), sha256, 'captioner', '{}', '{}'))"
    hashes = ", ".join(key.format(each.name, plan.recipe.seed) for each in plan.recipe.captioners)
    return f"list_position([{hashes}], greatest({hashes})) - 1"


def _best(plan: Plan, table: str, upto: int | None, only: str) -> str:
    """Return SQL for the rows of ``table`` by the captioner whose text fits the image best."""
    places, by = plan.compared_captioners, plan.compared_by
    score = by.source[plan.recipe.captions.by]
    joins = []
    for place in places:
        captions, similarities = (captioner_rows(plan, place, each, upto, only) for each in CAPTION_TABLES)
        joins.append(
            f"{captions} captions{place}" + (f" ON captions{place}.sha256 = captions0.sha256" if place else "")
        )
        joins.append(
            f"{similarities} caption_similarity{place} ON caption_similarity{place}.sha256 = captions{place}.sha256 "
            f"AND caption_similarity{place}.input_digest = {text_digest(f'captions{place}.text')}"
        )
        if by.table not in CAPTION_TABLES:
            joins.append(
                f"{rows_by_text(plan, by.table, upto, only)} {by.table}{place} ON {by.table}{place}.sha256 = "
                f"captions{place}.sha256 AND {by.table}{place}.input_digest = {text_digest(f'captions{place}.text')}"
            )
    # A text that is not ok has no number; an ok text without a score is below all others.
    fits = ", ".join(
        f"if(captions{place}.status = 'ok', coalesce({by.table}{place}.{score}, '-inf'::DOUBLE), NULL)"
        for place in places
    )
    rows = " ".join(f"WHEN {place + 1} THEN {table}{place}" for place in places)
    best = f"coalesce(list_position([{fits}], list_max([{fits}])), 1)"
    return f"(SELECT unnest(chosen) FROM (SELECT CASE {best} {rows} END AS chosen FROM {' JOIN '.join(joins)}))"


def scored_rows(plan: Plan, table: str, key: str, upto: int | None, only: str) -> str:
    """Return SQL for a score table's valid rows, one per key: rows of this plan's scorer, the newest of each key.

    ``upto`` ignores rows of later commits, None for none. ``only`` is a condition on all rows, '' for none.
    """
    where = _of_scorer(plan, table, upto, only)
    if not any(score.table == table and score.by_input for score in plan.scores):
        return f"(SELECT * FROM {table}{where})"
    # A key has a second row only in a shard that was processed twice. Ranking all rows took as long as the whole cut.
    once = (
        f"(SELECT shard FROM partitions WHERE \"table\" = '{table}' AND scorer = '{plan.scorer(table)}' AND rows > 0 "
        "GROUP BY shard HAVING count(*) = 1)"
    )
    return (
        f"(SELECT * FROM {table}{where} AND shard IN {once} UNION ALL SELECT * FROM {table}{where} AND shard NOT IN "
        f"{once} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit DESC) = 1)"
    )


def text_digest(text: str) -> str:
    """Return SQL for the input digest of a score computed from one text (SQL)."""
    return f"left(sha256({text}), 32)"


def _of_scorer(plan: Plan, table: str, upto: int | None, only: str) -> str:
    """Return a WHERE clause for the rows of the plan's scorer; ``upto`` and ``only`` as in `scored_rows`."""
    conditions = ("" if upto is None else f"commit <= {upto}", only, f"scorer = '{plan.scorer(table)}'")
    return f" WHERE {' AND '.join(filter(None, conditions))}"
