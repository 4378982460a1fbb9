"""Read captions: the first ones, counts by status, a run's costs, all of a version's images, those of a new source."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.chosen_captions import captioner_rows, text_digest, with_own
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.demo_weights import demo_weights
from pairmill.catalog.terms.error import PairmillError


@dataclass(frozen=True)
class Spent:
    """Cost of a run's committed captions: images, tokens, and the model's ``seconds``."""

    pictures: int
    tokens: int
    seconds: float


def spent(lake: Lake, run_id: str, scorer: str) -> Spent:
    """Sum the cost of the captions of ``scorer`` that run ``run_id`` has committed, without reading any caption."""
    sql = """SELECT coalesce(sum(rows), 0), coalesce(sum(tokens), 0), coalesce(sum(seconds), 0) FROM usage
        WHERE run_id = ? AND scorer = ?"""
    pictures, tokens, seconds = lake.query(sql, (run_id, scorer))[0]
    return Spent(int(pictures), int(tokens), float(seconds))


def has_demo_weights(lake: Lake, scorer: str) -> bool:
    """Return whether the captions of ``scorer`` (a digest) come from the small shipped demo captioner."""
    return bool(demo_weights(model for (model,) in lake.query("SELECT model FROM scorers WHERE digest = ?", (scorer,))))


def by_status(lake: Lake, scorer: str) -> dict[str, int]:
    """Count the captions of ``scorer`` by status, most frequent first; only images in current documents count."""
    current = f"captions SEMI JOIN ({_current_contents()}) h USING (sha256) WHERE scorer = ?"
    sql = f"SELECT status, count(*) AS n FROM {current} GROUP BY status ORDER BY n DESC, status"
    return dict(lake.query(sql, (scorer,)))


def count_uncaptioned(lake: Lake, plan: Plan) -> int:
    """Count the images in current documents that the plan's first model has not captioned, and is to caption."""
    asked = f"(SELECT sha256 FROM image_content SEMI JOIN ({_current_contents()}) h USING (sha256))"
    if plan.recipe.captions.way == "fill":
        asked = f"(FROM {asked} WHERE NOT {with_own(plan)})"
    made = "ANTI JOIN (SELECT sha256 FROM captions WHERE scorer = ?) USING (sha256)"
    return lake.query(f"SELECT count(*) FROM {asked} {made}", (plan.scorer(plan.first_captions),))[0][0]


def _current_contents() -> str:
    """Return SQL for the contents of images in current documents."""
    return f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"


def first_captions(lake: Lake, scorer: str, n: int) -> list[dict[str, Any]]:
    """Return the first ``n`` captions of ``scorer`` in the order of their commits.

    Each has sha256, shard, text, status, n_tokens, seconds, and the image's ``address`` (NULL without a document).
    """
    sql = f"""SELECT sha256, shard, text, status, n_tokens, seconds FROM captions WHERE scorer = ?
        ORDER BY "commit", shard, sha256 LIMIT {n}"""
    made = lake.table(sql, (scorer,)).to_pylist()
    one_each = """SELECT image_id, document_id, position, url, sha256 FROM images WHERE sha256 IN (SELECT unnest(?))
        QUALIFY row_number() OVER (PARTITION BY sha256 ORDER BY image_id) = 1"""
    shown = f"SELECT sha256, raw_image_url FROM {with_released_address(one_each)}"
    addresses = dict(lake.query(shown, ([row["sha256"] for row in made],)))
    return [{**row, "address": addresses.get(row["sha256"])} for row in made]


def captions_of(lake: Lake, dataset: Dataset) -> str:
    """Return SQL for (sha256, captions) of a version's images: a list per image, in the recipe's order of captioners.

    Each element has captioner, text (NULL unless the status is ok), status and similarity (NULL if not computed).
    Raises PairmillError if the dataset's recipe has no captioner.
    """
    plan = plan_of(lake, dataset)
    of_version = f"(SELECT sha256 FROM pairs WHERE {dataset.where})"
    if not (rows := all_captions(plan, dataset.commit, f"sha256 IN {of_version}")):
        raise PairmillError(f"dataset '{dataset}' has no captions: its recipe has no captioner. Leave `captions` out.")
    one = "{'captioner': captioner, 'text': text, 'status': status, 'similarity': similarity}"
    return f"(SELECT sha256, list({one} ORDER BY place) AS captions FROM ({rows}) GROUP BY sha256)"


def captions_on(lake: Lake, plan: Plan, upto: int, sha256s: Sequence[str]) -> dict[str, list[tuple[str, str]]]:
    """Return the captions of pictures by all captioners: sha256 -> (captioner, text), in the recipe's order.

    Returns {} for a recipe of one captioner, whose captions stand in the pairs.
    """
    if len(plan.recipe.captioned_by) < 2 or not sha256s:
        return {}
    rows = all_captions(plan, upto, f"sha256 IN ({', '.join(map(quoted, sha256s))})")
    each = "list((captioner, text) ORDER BY place)"
    return dict(lake.query(f"SELECT sha256, {each} FROM ({rows}) GROUP BY sha256")) if rows else {}


def all_captions(plan: Plan, upto: int, only: str) -> str:
    """Return SQL for (sha256, place, captioner, text, status, similarity) of all captions by the plan's captioners.

    Restricted to commits up to ``upto`` and the condition ``only``; '' without captioners.
    """
    places = range(len(plan.recipe.captioned_by))
    known = [place for place in places if plan.scorer(plan.of_captioner("captions", place))]
    return " UNION ALL ".join(
        f"SELECT c.sha256, {place} AS place, captioner, CASE WHEN status = 'ok' THEN text END AS text, status, "
        f"caption_similarity AS similarity FROM {captioner_rows(plan, place, 'captions', upto, only)} c "
        f"LEFT JOIN {captioner_rows(plan, place, 'caption_similarity', upto, only)} s "
        f"ON s.sha256 = c.sha256 AND s.input_digest = {text_digest('c.text')}"
        for place in known
    )


MOST_SENTENCES = 500


@dataclass(frozen=True)
class FirstTexts:
    """What a sample of a source has of texts: captions beside pictures, and sentences."""

    pictures: int
    captioned: int  # how many of them came with a text of their own: a caption file or column, an alt text
    sentences: tuple[str, ...]  # up to MOST_SENTENCES sentences


def first_texts(lake: Lake) -> FirstTexts:
    """Count the captions of a lake that holds a sample, and read its first sentences; reads all of its pictures."""
    own = "SELECT alt_text FROM images UNION ALL SELECT alt_text FROM links"
    n, captioned = lake.query(f"SELECT count(*), count(*) FILTER (trim(alt_text) <> '') FROM ({own})")[0]
    rows = lake.query(f"SELECT text FROM sentences ORDER BY sentence_id LIMIT {MOST_SENTENCES}")
    return FirstTexts(n, captioned, tuple(text for (text,) in rows))
