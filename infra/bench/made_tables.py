"""Define SQL for the rows of a synthetic lake: metadata and scores without pixels, in RealSyn's proportions.

RealSyn is arXiv 2502.12513. Each image has four sentences and twelve candidates (4 x top_k). One image in twenty shows
a picture that another one shows too; one sentence in ten repeats another one; 4 % of the pictures and of the sentences
have a near duplicate; a cluster has 336 images. A few sentences are candidates of very many pictures, once a picture. A
fifth of the sentences passes the rules of `30m`. A score of a later stage exists only if the rules before it are
passed.
"""

from __future__ import annotations

# For image i of n: the picture that it shows. For sentence j: the first sentence with the same text. For candidate j:
# its sentence; the k-th sentence of all is drawn with a frequency proportional to k ** -(2/3).
PICTURE = "if(i % 20 < 19, i, hash(i) % ({n} // 20) * 20 + i // 20 % 19)"
SENTENCE = "if(j % 10 < 9, j, hash(j) % (4 * {n} // 10) * 10 + j // 10 % 9)"
CANDIDATE = "floor(((hash(p, j) >> 11) / 2.0 ** 53) ** 3 * 4 * {n})::BIGINT"
TEXT = "'sentence ' || {} || ' says what stands around its picture, in so many words'"
SHAPE = """(90 + hash(p) % 900)::INTEGER AS width, (90 + hash(p, 1) % 700)::INTEGER AS height, 'jpeg' AS format,
    (90000 + hash(p) % 50000)::BIGINT AS n_bytes"""
# One byte's range of values each: 16 true signatures of 37M sentences would take 5 GB, and no statement reads them.
BANDS = ", ".join(f"hash(s) % {239 - n} AS band{n}" for n in range(1, 17))
TABLES = {
    "images": f"""md5('o' || i) AS image_id, md5('d' || i // 3) AS document_id, (i % 3)::INTEGER AS position,
        'https://example.org/pictures/' || i || '.jpg' AS url, 'picture ' || i AS alt_text,
        md5(p::VARCHAR) AS sha256, {SHAPE}""",
    "image_content": f"md5(p::VARCHAR) AS sha256, {SHAPE}",
    "payloads": "md5(p::VARCHAR) AS sha256, NULL AS bytes, 'file' AS uri, 0 AS \"offset\", 1 AS length",
    "image_quality": """md5(p::VARCHAR) AS sha256, hash(p) % 100000 / 10.0 AS sharpness,
        hash(p, 2) % 9973 / 9973 AS brightness, hash(p, 3) % 9941 / 100 AS colourfulness,
        hash(p, 4) % 8000 / 1000 AS image_entropy""",
    "image_hash": "md5(p::VARCHAR) AS sha256, hash(p, 7) % 65536 AS phash, NULL::VARCHAR AS flat_colours",
    "image_similarity": """md5(p::VARCHAR) AS sha256, md5('x' || p) AS input_digest, 0.2 AS alt_similarity,
        round(0.2 + hash(p, 5) % 3000 / 20000, 4) AS match_similarity, match_similarity AS best_similarity""",
    "image_embedding": "md5(p::VARCHAR) AS sha256, '\\x00'::BLOB AS image_vector",
    "clusters": "'image' AS kind, md5(p::VARCHAR) AS key, (hash(p, 6) % (1 + {n} // 336))::INTEGER AS cluster",
    "match_candidates": """md5(p::VARCHAR) AS sha256, md5('s' || t - (t % 10 = 9)::BIGINT) AS content,
        round(0.2 + hash(j, p) % 2000 / 10000, 4) AS similarity""",
    "sentences": f"""md5('t' || j) AS sentence_id, md5('d' || i // 3) AS document_id, (j % 4)::INTEGER AS position,
        {TEXT.format("s")} AS text, md5('s' || s) AS content""",
    "sentence_content": f"md5('s' || s) AS content, {TEXT.format('s')} AS text",
    "sentence_quality": """md5('s' || s) AS content, (hash(s) % 30)::INTEGER AS n_words,
        1.0 + hash(s, 1) % 40 / 10 AS text_entropy, hash(s, 2) % 20 = 0 AS has_url, hash(s, 3) % 50 = 0 AS has_emoji,
        hash(s, 4) % 20 = 0 AS is_boilerplate, 'en' AS language""",
    "sentence_signature": f"md5('s' || s) AS content, {BANDS}, hash(s, 5) % 251 AS sketch",
    "corpus_entropy": "md5('s' || s) AS content, hash(s, 5) % 1000 / 300 AS corpus_entropy",
    "sentence_structure": """md5('s' || s) AS content, (hash(s, 6) % 12)::INTEGER AS complexity,
        hash(s, 7) % 10 < 7 AS has_action""",
    "perplexity": "md5('s' || s) AS content, 5 + hash(s, 8) % 4000 / 10 AS perplexity",
    "sentence_embedding": "md5('s' || s) AS content, '\\x00'::BLOB AS sentence_vector",
}  # fmt: skip
# Conditions for a sentence to reach a score's stage: the rules of `30m` on the columns above.
READABLE = "hash(s) % 30 >= 3 AND hash(s, 2) % 20 <> 0 AND hash(s, 3) % 50 <> 0 AND hash(s, 5) % 1000 >= 90"
ACTING = f"{READABLE} AND hash(s, 6) % 12 >= 1 AND hash(s, 7) % 10 < 7"
REACHED = {
    "sentence_structure": READABLE,
    "perplexity": ACTING,
    "sentence_embedding": f"{ACTING} AND hash(s, 8) % 4000 BETWEEN 250 AND 1950",
}
TIMES = {
    "match_candidates": 12,
    **dict.fromkeys(("sentences", "sentence_content", "sentence_quality", "sentence_signature", "corpus_entropy"), 4),
    **dict.fromkeys(REACHED, 4),
}
OF_PICTURE = ("image_content", "payloads", "image_quality", "image_hash", "image_similarity", "image_embedding",
              "clusters", "match_candidates")  # fmt: skip
# Tables with a row for each sentence; the other tables of sentences have a row for each distinct one.
EACH = ("sentences",)
# Of every fifty pictures, and sentences, the first two are near duplicates.
GROUPS = {
    "image_groups": ("sha256", "", 1, ""),
    "sentence_groups": ("content", "s", 4, ", 0 AS cluster"),
}


def rows(table: str, first: int, last: int, n: int, prefix: str, shard: int) -> str:
    """Return SQL for the rows that images ``first`` to ``last`` add to a table of a lake of ``n`` images.

    The rows include their shard: ``prefix`` and a number, ``shard`` images each.
    """
    times = TIMES.get(table, 1)
    numbered = f"SELECT i, {PICTURE} AS p, j, {SENTENCE} AS s, {CANDIDATE} AS t FROM (SELECT j // {times} AS i, j FROM "
    numbered += f"range({first * times}, {last * times}) r(j))"
    of_sentence = times == 4 and table not in EACH
    where = "WHERE p = i" if table in OF_PICTURE else "WHERE s = j" if of_sentence else ""
    where += f" AND {REACHED[table]}" if table in REACHED else ""
    named = f"printf('{prefix}%05d', i // {shard}) AS shard"
    made = f"SELECT {TABLES[table]}, {named} FROM ({numbered}) {where}".replace("{n}", str(n))
    if table != "match_candidates":
        return made
    return f"SELECT sha256, content, max(similarity) AS similarity, shard FROM ({made}) GROUP BY ALL"


def groups(table: str, n: int) -> str:
    """Return SQL for the groups of near duplicates among the pictures, or sentences, of a lake of ``n`` images."""
    key, letter, times, more = GROUPS[table]
    one, pair = (f"md5('{letter}' || {number})" for number in ("k", "(k // 2 * 2)"))
    other = f"md5('{letter}' || (k // 2 * 2 + 1))"
    made = f"SELECT {one} AS {key}, least({pair}, {other}) AS group_id, 2 AS group_size{more} FROM "
    return made + f"(SELECT r // 2 * 50 + r % 2 AS k FROM range({n * times // 25}) t(r))"
