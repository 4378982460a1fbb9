"""Write SQL for a picture's caption, and how well it fits: the rows of the captioner that the recipe chooses for it.

- first: those of the first one;
- best: of the texts with status ok the one most similar to the picture, of equal ones the earlier captioner's; where
  none is ok, the first captioner's. There is no row until every captioner's text and its similarity are there;
- mixture: those of the captioner that is drawn. Each has a number, -ln(u) / weight with u in (0, 1) by a hash of the
  picture, the seed and its name, and the smallest wins: weights are shares, and a captioner that is added or taken out
  moves the pictures that it gets or had, and no other (Efraimidis and Spirakis 2006; "rendezvous" hashing). The hash is
  another than that by which the cap draws, or every kept picture would be the same captioner's.
"""

from pairmill.catalog.pending.scored_rows import scored_rows, text_digest
from pairmill.catalog.recipe.plan import Plan

TABLES = ("captions", "caption_similarity")
_BITS = 52  # of a hash: with one half added it is still exact in a DOUBLE, and u is neither 0 nor 1


def chosen_rows(plan: Plan, table: str, upto: int | None = None, only: str = "") -> str:
    """SQL of the rows of ``table``, one of TABLES, that stand for a picture's caption; ``captioner`` is the recipe's
    name for who wrote it. ``upto`` and ``only`` as in `scored_rows`."""
    choose = plan.recipe.captions.choose
    if choose == "best":
        return _best(plan, table, upto, only)
    if choose == "mixture":
        rows = (f"SELECT * FROM {captioner_rows(plan, place, table, upto, only)} WHERE {_drawn(plan)} = {place}"
                for place in drawable(plan))  # fmt: skip
        return f"({' UNION ALL '.join(rows)})"
    return captioner_rows(plan, 0, table, upto, only)


def captioner_rows(plan: Plan, place: int, table: str, upto: int | None = None, only: str = "") -> str:
    """SQL of the rows of ``table``, one of TABLES, by the captioner at ``place``."""
    rows = scored_rows(plan.alone(place), table, "sha256", upto, only)
    if table != "captions":
        return rows
    # A row by the same model and prompt may have been made under another name.
    return f"(SELECT * REPLACE ('{plan.recipe.captioners[place].name}' AS captioner) FROM {rows})"


def drawable(plan: Plan) -> list[int]:
    """Return the places of the captioners that a mixture may draw."""
    return [place for place, each in enumerate(plan.recipe.captioners) if each.weight]


def wave_of_captioner(plan: Plan, place: int) -> str:
    """SQL of those of ``wave_asked`` that the captioner at ``place`` is to describe."""
    if not plan.asks_one_captioner:
        return "wave_asked"
    return f"(SELECT * FROM wave_asked WHERE {_drawn(plan)} = {place})"


def asked_shares(plan: Plan) -> dict[int, float]:
    """Return which share of the pictures each captioner that is asked is to describe, by its place."""
    if not plan.asks_one_captioner:
        return dict.fromkeys(range(len(plan.recipe.captioners)), 1.0)
    weights = {place: plan.recipe.captioners[place].weight for place in drawable(plan)}
    return {place: weight / sum(weights.values()) for place, weight in weights.items()}


def _drawn(plan: Plan) -> str:
    """SQL of the place of the captioner that is drawn for ``sha256``."""
    places = drawable(plan)
    numbers = ", ".join(_number(plan, place) for place in places)
    return f"{places}[list_position([{numbers}], list_min([{numbers}]))]"


def _number(plan: Plan, place: int) -> str:
    captioner = plan.recipe.captioners[place]
    hashed = f"sha256(concat_ws(chr(31), sha256, 'captioner', '{captioner.name}', '{plan.recipe.seed}'))"
    u = f"(CAST('0x' || left({hashed}, {_BITS // 4}) AS BIGINT) + 0.5::DOUBLE) / {2**_BITS}::DOUBLE"
    return f"-ln({u}) / {captioner.weight!r}::DOUBLE"


def _best(plan: Plan, table: str, upto: int | None, only: str) -> str:
    places = plan.compared_captioners
    joins = []
    for place in places:
        captions, similarities = (captioner_rows(plan, place, each, upto, only) for each in TABLES)
        joins.append(
            f"{captions} captions{place}" + (f" ON captions{place}.sha256 = captions0.sha256" if place else "")
        )
        joins.append(
            f"{similarities} caption_similarity{place} ON caption_similarity{place}.sha256 = captions{place}.sha256 "
            f"AND caption_similarity{place}.input_digest = {text_digest(f'captions{place}.text')}"
        )
    # A cosine is at least -1; one that could not be computed is NULL.
    fits = ", ".join(
        f"if(captions{place}.status = 'ok', coalesce(caption_similarity{place}.caption_similarity, -2), -3)"
        for place in places
    )
    rows = " ".join(f"WHEN {place + 1} THEN {table}{place}" for place in places)
    return (
        f"(SELECT unnest(chosen) FROM (SELECT CASE list_position([{fits}], list_max([{fits}])) {rows} END AS chosen "
        f"FROM {' JOIN '.join(joins)}))"
    )
