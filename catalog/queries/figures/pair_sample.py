"""Read pairs and pictures of a version for its report: samples, extremes, benchmark copies, how sentences are reused.

Counts over pairs are exact, but for the sentences of pictures' own pages: these are looked for in a sample.
"""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.parts import CONTAMINATION
from pairmill.catalog.recipe.plan import Plan
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

    One pass reads all similarities. All pairs of a version are compared, not a sample.
    """
    ends = {(column, end): sign for column in SIMILARITIES for end, sign in (("worst", ""), ("best", "-"))}
    first = (
        f"min({{'at': {sign}{column}, 'image_id': image_id}}, {n}) FILTER (isfinite({column}))"
        for (column, _), sign in ends.items()
    )
    found = lake.query(f"SELECT {', '.join(first)} FROM pairs WHERE {dataset.where}")[0]
    ids = {end: [each["image_id"] for each in rows or ()] for end, rows in zip(ends, found, strict=True)}
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
    rows = lake.rows(f"""SELECT p.* REPLACE ({cut}), c.shard FROM ({own} AND image_id IN ({among})) p
        LEFT JOIN image_content c ON c.sha256 = p.sha256""")
    place = {image_id: n for n, image_id in enumerate(image_ids)}
    return sorted(rows, key=lambda row: place[row["image_id"]])


SHOWN = 6  # of each set


@dataclass(frozen=True)
class SetHits:
    """Pictures dropped for being near to pictures of one benchmark set."""

    folder: str  # the benchmark's folder
    n: int  # distinct pictures that are near to one of its pictures
    # SHOWN of these, nearest first: image_id, sha256, shard, bits (differing hash bits), cosine (None without vectors),
    # and ``file``, the benchmark's picture
    hits: list[dict[str, Any]]


def contamination_hits(lake: Lake, dataset: Dataset, plan: Plan) -> list[SetHits]:
    """Return the hits of each benchmark set of the version's recipe, in its order; [] if the recipe names no sets.

    A hit is counted with the set of its nearest copy by hash if the hash dropped it, else of its nearest vector.
    """
    if (section := plan.recipe.contamination) is None:
        return []
    vectors = "NULL::DOUBLE AS cosine, NULL::VARCHAR AS near"
    joined = ""
    if section.cosine is not None:
        vectors = "v.benchmark_cosine AS cosine, v.benchmark_near AS near"
        joined = f"LEFT JOIN (SELECT * FROM benchmark_vector WHERE scorer = '{plan.scorer('benchmark_vector')}') v " \
                 "ON v.sha256 = i.sha256"  # fmt: skip
    sql = f"""SELECT min(i.image_id) AS image_id, i.sha256, c.shard, h.benchmark_bits AS bits, {vectors},
        CASE WHEN h.benchmark_bits <= ? THEN h.benchmark_copy ELSE near END AS file FROM decisions d
        JOIN images i ON i.image_id = d.item_id JOIN image_content c ON c.sha256 = i.sha256
        JOIN (SELECT * FROM benchmark_hash WHERE scorer = '{plan.scorer("benchmark_hash")}') h
        ON h.sha256 = i.sha256 {joined} WHERE d.dataset = ? AND d.version = ? AND d.dropped_by = '{CONTAMINATION}'
        GROUP BY ALL ORDER BY bits, cosine DESC, i.sha256"""
    rows = lake.rows(sql, (section.phash, dataset.name, dataset.version))
    found: dict[str, list[dict[str, Any]]] = {folder: [] for folder in section.sets}
    for row in rows:
        for folder in section.sets if row["file"] else ():
            if Path(row["file"]).is_relative_to(Path(folder).expanduser()):
                found[folder].append(row)
                break
    return [SetHits(folder, len(hits), hits[:SHOWN]) for folder, hits in found.items()]


HUBS = 10
REPEATED, PICTURES = 5, 6
SAMPLE = 100_000  # pairs whose sentences are looked for in the picture's own document


@dataclass(frozen=True)
class Reuse:
    """Reuse of sentences: ``given`` texts of pairs are ``distinct`` sentences.

    ``hubs``: (text, number of pairs) of the HUBS most used sentences, in order; ``hub_share``: their share of texts.
    """

    given: int
    distinct: int
    hub_share: float
    hubs: tuple[tuple[str, int], ...]


def reuse(lake: Lake, dataset: Dataset) -> Reuse:
    """Count how often each sentence is the text of a pair of the version.

    Grouped by a hash of 16 bytes: a group takes some 40 bytes, so 90M sentences spill to disk at a limit below 4 GB.
    """
    texts = f"SELECT unnest([{_texts(dataset)}]) AS text FROM pairs WHERE {dataset.where}"
    counted = f"SELECT md5_number(text) AS id, count(*) AS n FROM ({texts}) WHERE text IS NOT NULL GROUP BY id"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE given_texts AS {counted}")
    try:
        given, distinct = lake.query("SELECT coalesce(sum(n), 0)::BIGINT, count(*) FROM temp.given_texts")[0]
        top = f"SELECT id, n FROM temp.given_texts ORDER BY n DESC, id LIMIT {HUBS}"
        named = f"""SELECT left(any_value(text), {LONGEST}) AS text, any_value(n) AS n FROM ({texts}) JOIN ({top}) ON
            id = md5_number(text) GROUP BY id ORDER BY n DESC, text"""
        hubs = lake.query(named) if given else []
    finally:
        lake.execute("DROP TABLE temp.given_texts")
    return Reuse(given, distinct, sum(n for _, n in hubs) / given if given else 0.0, tuple(hubs))


def repeated_texts(lake: Lake, dataset: Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return, by kind of text, the REPEATED texts that most pairs of the version share, most first.

    Rows of ``text``, ``n`` (pairs), and ``pictures``: rows of image_id, sha256 and shard of PICTURES of them. Kinds
    without a text of two pairs are left out. Each kind is grouped by hash, as in `reuse`.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    kinds = {"sentence": _texts(dataset), "caption": "caption", "fused text": "syn_text", "alt text": "alt_text"}
    for kind, columns in kinds.items():
        texts = f"SELECT unnest([{columns}]) AS text, image_id, sha256 FROM pairs WHERE {dataset.where}"
        texts = f"SELECT md5_number(text) AS id, * FROM ({texts}) WHERE text <> ''"
        top = f"""SELECT id, count(*) AS n FROM ({texts}) GROUP BY id HAVING count(*) > 1 ORDER BY n DESC, id
            LIMIT {REPEATED}"""
        rows = lake.rows(f"""SELECT left(any_value(text), {LONGEST}) AS text, any_value(n) AS n,
            min({{'image_id': image_id, 'sha256': sha256}}, {PICTURES}) AS pictures
            FROM ({texts}) JOIN ({top}) USING (id) GROUP BY id ORDER BY n DESC, text""")
        found |= {kind: rows} if rows else {}
    pictures = [each for rows in found.values() for row in rows for each in row["pictures"]]
    shas = ", ".join(quoted(each["sha256"]) for each in pictures)
    shards = dict(lake.query(f"SELECT sha256, shard FROM image_content WHERE sha256 IN ({shas or 'NULL'})"))
    for each in pictures:
        each["shard"] = shards.get(each["sha256"], "")
    return found


def by_rank(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Summarise the similarities of a version's texts by their rank: rows of ``rank, n, mean, lowest, highest``."""
    n = dataset.n_texts
    known = ", ".join(text_columns.similarities(n))
    ranked = f"""SELECT unnest(range(1, {n + 1})) AS rank, unnest([{known}]) AS s
        FROM (SELECT {known} FROM pairs WHERE {dataset.where})"""
    return lake.rows(f"""SELECT rank, count(s) AS n, avg(s) AS mean, min(s) AS lowest, max(s) AS highest
        FROM ({ranked}) GROUP BY rank ORDER BY rank""")


def own_document(lake: Lake, dataset: Dataset) -> tuple[int, int]:
    """Return (texts, texts that the picture's own document contains) of the SAMPLE pairs with the smallest ids."""
    drawn = f"SELECT * FROM pairs WHERE {dataset.where} ORDER BY image_id LIMIT {SAMPLE}"
    texts = f"SELECT document_id, unnest([{_texts(dataset)}]) AS text FROM ({drawn})"
    return lake.query(
        f"""WITH given AS MATERIALIZED (SELECT * FROM ({texts}) WHERE text IS NOT NULL),
        own AS (SELECT DISTINCT s.document_id, c.text
            FROM (SELECT * FROM sentences SEMI JOIN given USING (document_id)) s
            JOIN sentence_content c USING (content) SEMI JOIN given g ON g.text = c.text)
        SELECT count(*), count(own.text) FROM given LEFT JOIN own USING (document_id, text)"""
    )[0]


def _texts(dataset: Dataset) -> str:
    """Return the version's columns of texts as SQL."""
    return ", ".join(text_columns.texts(dataset.n_texts))
