"""Measure how sentences are assigned to pictures: reuse of a sentence, share from the own page, similarities.

Counts over pairs are exact. Similarities to sentences of the picture's own page, and figures from vectors, use bounded
samples.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.pair_sample import LONGEST
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms import text_columns

HUBS = 10
REPEATED, PICTURES = 5, 6
SAMPLE = 100_000  # pairs whose sentences are looked for in the picture's own document
SHARDS = 4  # shards whose vectors are read
VECTORS = 5_000


@dataclass(frozen=True)
class Reuse:
    """Reuse of sentences: ``given`` texts of pairs are ``distinct`` sentences.

    ``hubs``: (text, number of pairs) of the HUBS most used sentences, most used first; ``hub_share``: their share of
    all texts.
    """

    given: int
    distinct: int
    hub_share: float
    hubs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Gap:
    """Distance of the mean picture vector and the mean sentence vector, both of unit vectors: 0 to 2.

    The modality gap of Liang et al. 2022 (arXiv:2203.02053). ``pictures`` and ``sentences`` are the numbers of vectors.
    """

    distance: float
    pictures: int
    sentences: int


def reuse(lake: Lake, dataset: Dataset) -> Reuse:
    """Count how often each sentence is the text of a pair of the version.

    Grouped by a hash of 16 bytes: a group takes some 40 bytes, so that 90M sentences spill to disk at a memory limit
    below 4 GB.
    """
    texts = f"SELECT unnest([{_texts(dataset)}]) AS text FROM pairs WHERE {dataset.where}"
    counted = f"SELECT md5_number(text) AS id, count(*) AS n FROM ({texts}) WHERE text IS NOT NULL GROUP BY id"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE given_texts AS {counted}")
    try:
        given, distinct = lake.query("SELECT coalesce(sum(n), 0)::BIGINT, count(*) FROM temp.given_texts")[0]
        top = f"SELECT id, n FROM temp.given_texts ORDER BY n DESC, id LIMIT {HUBS}"
        named = (
            f"SELECT left(any_value(text), {LONGEST}) AS text, any_value(n) AS n FROM ({texts}) JOIN ({top}) ON "
            "id = md5_number(text) GROUP BY id ORDER BY n DESC, text"
        )
        hubs = lake.query(named) if given else []
    finally:
        lake.execute("DROP TABLE temp.given_texts")
    return Reuse(given, distinct, sum(n for _, n in hubs) / given if given else 0.0, tuple(hubs))


def repeated_texts(lake: Lake, dataset: Dataset) -> dict[str, list[dict[str, Any]]]:
    """Return, by kind of text, the REPEATED texts that most pairs of the version share, most first.

    Rows of ``text``, ``n`` (pairs), and ``pictures``: rows of image_id, sha256 and shard of PICTURES of them. Kinds
    without a text of two pairs are left out. Each kind is grouped by hash, as in `reuse`.
    """
    found = {}
    kinds = {"sentence": _texts(dataset), "caption": "caption", "fused text": "syn_text", "alt text": "alt_text"}
    for kind, columns in kinds.items():
        texts = f"SELECT unnest([{columns}]) AS text, image_id, sha256 FROM pairs WHERE {dataset.where}"
        texts = f"SELECT md5_number(text) AS id, * FROM ({texts}) WHERE text <> ''"
        top = (
            f"SELECT id, count(*) AS n FROM ({texts}) GROUP BY id HAVING count(*) > 1 ORDER BY n DESC, id "
            f"LIMIT {REPEATED}"
        )
        rows = lake.rows(
            f"SELECT left(any_value(text), {LONGEST}) AS text, any_value(n) AS n, "
            f"min({{'image_id': image_id, 'sha256': sha256}}, {PICTURES}) AS pictures "
            f"FROM ({texts}) JOIN ({top}) USING (id) GROUP BY id ORDER BY n DESC, text"
        )
        shas = ", ".join(quoted(each["sha256"]) for row in rows for each in row["pictures"])
        shards = dict(lake.query(f"SELECT sha256, shard FROM image_content WHERE sha256 IN ({shas or 'NULL'})"))
        for each in (each for row in rows for each in row["pictures"]):
            each["shard"] = shards.get(each["sha256"], "")
        found |= {kind: rows} if rows else {}
    return found


def by_rank(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the similarities of first texts, second texts, and so on: rows of ``rank, n, mean, lowest, highest``."""
    n = dataset.n_texts
    known = ", ".join(text_columns.similarities(n))
    ranked = (
        f"SELECT unnest(range(1, {n + 1})) AS rank, unnest([{known}]) AS s "
        f"FROM (SELECT {known} FROM pairs WHERE {dataset.where})"
    )
    return lake.rows(
        "SELECT rank, count(s) AS n, avg(s) AS mean, min(s) AS lowest, max(s) AS highest "
        f"FROM ({ranked}) GROUP BY rank ORDER BY rank"
    )


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


def modality_gap(lake: Lake, dataset: Dataset, plan: Plan) -> Gap | None:
    """Measure the modality gap on up to VECTORS pictures and sentences of SHARDS shards; None if either is missing."""
    means, counts = [], []
    for table, key, column in (
        ("image_embedding", "sha256", "image_vector"),
        ("sentence_embedding", "content", "sentence_vector"),
    ):
        if not plan.scorer(table):
            return None
        made_by = quoted(plan.scorer(table))
        shards = f"SELECT DISTINCT shard FROM partitions WHERE \"table\" = '{table}' AND scorer = {made_by}"
        only = f"shard IN ({shards} ORDER BY sha256(shard) LIMIT {SHARDS})"
        rows = current_scores(plan, table, key, dataset.commit, only)
        sql = f"SELECT {column} FROM {rows} WHERE {column} IS NOT NULL ORDER BY {key} LIMIT {VECTORS}"
        vectors = [np.frombuffer(vector, "<f2").astype(np.float32) for (vector,) in lake.query(sql)]
        if not vectors:
            return None
        means.append(np.mean(vectors, axis=0))
        counts.append(len(vectors))
    return Gap(float(np.linalg.norm(means[0] - means[1])), *counts)
