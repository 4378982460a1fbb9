"""Read pairs of a dataset version for display: a random sample, and the best and worst by each similarity."""

from itertools import chain
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.terms import text_columns

LONGEST = 600  # characters per text: a malformed page may contain a sentence of a megabyte
COMPARED = {"similarity1": "text1", "caption_similarity": "caption", "synthetic_similarity": "syn_text"}
SIMILARITIES = {
    "similarity1": "picture and first sentence",
    "caption_similarity": "picture and caption",
    "synthetic_similarity": "picture and fused text",
}


def sample(lake: Lake, dataset: Dataset, seed: int, n: int) -> list[dict[str, Any]]:
    """Return the ``n`` pairs with the smallest sha256(image_id || seed), texts shortened, each with its image's shard.

    It reads the ids first, one pass over one column, then only the wide rows of the sample.
    """
    order = "ORDER BY sha256(image_id || ?), image_id LIMIT ?"
    drawn = lake.query(f"SELECT image_id FROM pairs WHERE {dataset.where} {order}", (str(seed), n))
    return pairs_of(lake, dataset, [row[0] for row in drawn])


def extremes(lake: Lake, dataset: Dataset, n: int) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return similarity -> 'worst' and 'best' -> ``n`` pairs, most extreme first; similarities without values left out.

    Each similarity's column is read once for each end. All pairs of a version are compared, not a sample.
    """
    ids: dict[tuple[str, str], list[str]] = {}
    for column in SIMILARITIES:
        known = f"SELECT image_id FROM pairs WHERE {dataset.where} AND isfinite({column}) ORDER BY {column}"
        for end, order in (("worst", "ASC"), ("best", "DESC")):
            ids[column, end] = [row[0] for row in lake.query(f"{known} {order}, image_id LIMIT {n}")]
    rows = {row["image_id"]: row for row in pairs_of(lake, dataset, list(dict.fromkeys(chain(*ids.values()))))}
    return {
        column: {end: [rows[each] for each in ids[column, end]] for end in ("worst", "best")}
        for column in SIMILARITIES
        if ids[column, "best"]
    }


def pairs_of(lake: Lake, dataset: Dataset, image_ids: list[str]) -> list[dict[str, Any]]:
    """Return the pairs of these images, in the given order, each with its shard; cut texts to LONGEST characters."""
    texts = (*text_columns.texts(dataset.n_texts), "syn_text", "caption", "alt_text", "raw_image_url")
    cut = ", ".join(f"left({text}, {LONGEST}) AS {text}" for text in texts)
    among = ", ".join(map(quoted, image_ids)) or "NULL"
    own = f"SELECT {dataset.columns} FROM pairs WHERE {dataset.where}"
    rows = lake.rows(
        f"SELECT p.* REPLACE ({cut}), c.shard FROM ({own} AND image_id IN ({among})) p "
        "LEFT JOIN image_content c ON c.sha256 = p.sha256"
    )
    place = {image_id: n for n, image_id in enumerate(image_ids)}
    return sorted(rows, key=lambda row: place[row["image_id"]])
