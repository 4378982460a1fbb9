"""A lake of made-up metadata and scores, without pixels, in the proportions of RealSyn's recipe (arXiv 2502.12513).

For every image four sentences and twelve candidates (4 x top_k). One image in twenty shows a picture that another one
shows too, one sentence in ten says what another one says, 4 % of the pictures have a near duplicate; 336 images a
cluster. A few sentences are candidates of very many pictures, of one picture each once. Files are written by the
stages' own writer: a file a table and shard, rows in the order of their key; half of the shards lack their embedding.
"""

from __future__ import annotations

import pyarrow as pa

from catalog.lake.lake import Lake
from catalog.recipe.plan import Plan, compile_plan
from catalog.recipe.recipe import Recipe
from catalog.write.commit import Manifest, commit
from tasks.run.parquet_file import ParquetFile

SHARD = 50_000
SCORERS = {"image_quality": "quality", "image_similarity": "similarity", "image_embedding": "embedding",
           "image_groups": "groups", "balance_clusters": "clusters", "matches": "matches",
           "sentence_quality": "words"}  # fmt: skip
FILLED_BY = SCORERS | {"clusters": "clusters", "match_candidates": "matches"}

# An image i of n; the picture that it shows; the j-th sentence, and the first that says the same; a sentence for the
# j-th candidate: the k-th of all is one as often as k ** -(2/3).
PICTURE = "if(i % 20 < 19, i, hash(i) % ({n} // 20) * 20 + i // 20 % 19)"
SENTENCE = "if(j % 10 < 9, j, hash(j) % (4 * {n} // 10) * 10 + j // 10 % 9)"
CANDIDATE = "floor(((hash(p, j) >> 11) / 2.0 ** 53) ** 3 * 4 * {n})::BIGINT"
TEXT = "'sentence ' || {} || ' says what stands around its picture, in so many words'"
SHAPE = """(90 + hash(p) % 900)::INTEGER AS width, (90 + hash(p, 1) % 700)::INTEGER AS height, 'jpeg' AS format,
    (90000 + hash(p) % 50000)::BIGINT AS n_bytes"""
TABLES = {
    "images": f"""md5('o' || i) AS image_id, md5('d' || i // 3) AS document_id, (i % 3)::INTEGER AS position,
        'https://example.org/pictures/' || i || '.jpg' AS url, 'picture ' || i AS alt_text,
        md5(p::VARCHAR) AS sha256, {SHAPE}""",
    "image_content": f"md5(p::VARCHAR) AS sha256, {SHAPE}",
    "payloads": "md5(p::VARCHAR) AS sha256, NULL AS bytes, 'file' AS uri, 0 AS \"offset\", 1 AS length",
    "image_quality": """md5(p::VARCHAR) AS sha256, hash(p) % 100000 / 10.0 AS sharpness,
        hash(p, 2) % 9973 / 9973 AS brightness, hash(p, 3) % 9941 / 100 AS colourfulness,
        hash(p, 4) % 8000 / 1000 AS image_entropy""",
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
}
TIMES = {"match_candidates": 12, "sentences": 4, "sentence_content": 4, "sentence_quality": 4}
HOMES = {"image_content": "sha256", "sentence_content": "content"}  # filled by INSERT in the order of keys, as by index
OF_PICTURE = ("image_content", "payloads", "image_quality", "image_similarity", "image_embedding", "clusters",
              "match_candidates")  # fmt: skip


def plan(cap: int = 35) -> Plan:
    """The rules and settings of the recipe 30m, with another cap."""
    recipe = {
        "name": "big",
        "models": {"clip": "open_clip:A/b"},
        "images": [
            {"name": "short_side", "keep": "least(width, height) >= 100"},
            {"name": "aspect_ratio", "keep": "greatest(width, height) <= 3 * least(width, height)"},
            {"name": "clip_filter", "keep": "best_similarity >= 0.24"},
        ],
        "sentences": [
            {"name": "length", "keep": "n_words between 3 and 81"},
            {"name": "no_url", "keep": "not has_url"},
            {"name": "no_emoji", "keep": "not has_emoji"},
            {"name": "entropy", "keep": "text_entropy >= 1.5"},
            {"name": "boilerplate", "keep": "not is_boilerplate"},
            {"name": "repeats", "keep": "repeats <= 10"},
        ],
        "association": {"top_k": 3, "max_uses": 20},
        "balance": {"cap": cap},
    }
    return compile_plan(Recipe.model_validate(recipe), SCORERS)


def fill(lake: Lake, n: int) -> None:
    """Commit ``n`` images, a commit a shard; then what covers all: homes of contents, groups, the scorers' names."""
    for shard in range(-(-n // SHARD)):
        tables = [table for table in TABLES if table not in HOMES]
        missing = ("image_embedding",) if shard % 2 else ()
        commit(lake, [_shard(lake, table, shard, n) for table in tables if table not in missing])
    for table, key in HOMES.items():
        lake.execute(f"INSERT INTO {table} BY NAME {_typed(lake, table, _rows(table, 0, n, n))} ORDER BY {key}")
    commit(lake, [_write(lake, "image_groups", "all", _groups(n))])
    rows = [{"digest": SCORERS[name], "name": name, "commit": 1} for name in SCORERS]
    lake.insert("scorers", pa.Table.from_pylist(rows))


def _shard(lake: Lake, table: str, shard: int, n: int) -> Manifest:
    return _write(lake, table, f"shard{shard:05}", _rows(table, shard * SHARD, min(n, (shard + 1) * SHARD), n))


def _rows(table: str, first: int, last: int, n: int) -> str:
    """SQL: what images ``first`` to ``last`` bring to a table, with their shard."""
    times = TIMES.get(table, 1)
    rows = f"SELECT i, {PICTURE} AS p, j, {SENTENCE} AS s, {CANDIDATE} AS t FROM (SELECT j // {times} AS i, j FROM "
    rows += f"range({first * times}, {last * times}) r(j))"
    where = "WHERE p = i" if table in OF_PICTURE else "WHERE s = j" if table.startswith("sentence_") else ""
    shard = f"printf('shard%05d', i // {SHARD}) AS shard"
    made = f"SELECT {TABLES[table]}, {shard} FROM ({rows}) {where}".replace("{n}", str(n))
    if table != "match_candidates":
        return made
    return f"SELECT sha256, content, max(similarity) AS similarity, shard FROM ({made}) GROUP BY ALL"


def _groups(n: int) -> str:
    """SQL: pictures i and i + 1 of every fifty are near duplicates."""
    rows = "SELECT md5(k::VARCHAR) AS sha256, least(md5(k // 2 * 2 || ''), md5((k // 2 * 2 + 1) || '')) AS group_id, "
    return rows + f"2 AS group_size FROM (SELECT r // 2 * 50 + r % 2 AS k FROM range({n // 25}) t(r))"


def _typed(lake: Lake, table: str, rows: str) -> str:
    """SQL: the rows with their scorer and commit, every column of the table that they have in its type."""
    made = f"(SELECT *, '{FILLED_BY.get(table, '')}' AS scorer, 1 AS \"commit\" FROM ({rows}))"
    given = {row[0] for row in lake.query(f"DESCRIBE {made}")}
    names = [(row[0], row[1]) for row in lake.query(f"DESCRIBE {table}")]
    columns = (f"{_quoted(name) if name in given else 'NULL'}::{kind} AS {_quoted(name)}" for name, kind in names)
    return f"SELECT {', '.join(columns)} FROM {made}"


def _write(lake: Lake, table: str, name: str, rows: str) -> Manifest:
    path = f"{lake.staging(table, 'made')}/{name}.parquet"
    made = lake.table(f"{_typed(lake, table, rows)} ORDER BY ALL")
    file = ParquetFile(path)
    file.write(made)
    n, (size, digest) = made.num_rows, file.close()
    return Manifest(table, f"{table}-{name}", name, FILLED_BY.get(table, ""), n, size, 1.0, path, 1, "made", digest)


def _quoted(name: str) -> str:
    return f'"{name}"'
