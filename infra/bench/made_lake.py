"""Fill a lake with synthetic metadata and scores (:mod:`infra.bench.made_tables`), and compile recipes over it.

The stages' own writer writes the files: one file a table and shard, rows in the order of their key. Half of the shards
lack their embeddings.
"""

from __future__ import annotations

import pyarrow as pa

from infra.bench.made_tables import GROUPS, TABLES, groups, rows
from infra.bench.measure import ROOT
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.changed_inputs import pending_similarity
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe, load
from pairmill.catalog.write.commit import Manifest, commit
from pairmill.tasks.run.items.partition import ParquetFile

SHARD = 50_000
# Table to scorer digest: of a recipe of cheap rules, and of `30m`, which adds some and replaces others.
SCORERS = {"image_quality": "quality", "image_similarity": "similarity", "image_embedding": "embedding",
           "image_groups": "groups", "balance_clusters": "clusters", "matches": "matches",
           "sentence_quality": "words"}  # fmt: skip
SCORERS_30M = SCORERS | {
    "image_similarity": "similarity of 30m", "image_hash": "hash", "sentence_signature": "signature",
    "sentence_groups": "sentence groups", "corpus_entropy": "entropy", "sentence_structure": "structure",
    "perplexity": "perplexity", "sentence_embedding": "sentence embedding", "captions": "captions", "tags": "tags",
    "caption_similarity": "caption similarity", "synthetic": "synthetic",
    "synthetic_similarity": "synthetic similarity"}  # fmt: skip
FILLED_BY = SCORERS_30M | SCORERS | {"clusters": "clusters", "match_candidates": "matches"}
LACKING = ("image_embedding", "sentence_embedding")
HOMES = {"image_content": "sha256", "sentence_content": "content"}  # filled by INSERT in the order of keys


def plan(cap: int = 35) -> Plan:
    """Compile a recipe of RealSyn's early rules alone, with this cap."""
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


def plan_30m(**overrides: str) -> Plan:
    """Compile the recipe `30m`, with overrides by dotted keys ('__' for the dot)."""
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    return compile_plan(load(ROOT / "flows" / "recipes" / "30m.yaml", given), SCORERS_30M)


def fill(lake: Lake, n: int) -> None:
    """Commit ``n`` images, one commit a shard; then the tables over all shards: homes of contents, groups, scorers."""
    for shard in range(-(-n // SHARD)):
        lacking = LACKING if shard % 2 else ()
        tables = [table for table in TABLES if table not in (*HOMES, *lacking)]
        add(lake, tables, shard * SHARD, min(n, (shard + 1) * SHARD), n)
    add_homes(lake, 0, n, n)
    commit(lake, [write(lake, table, "all", groups(table, n)) for table in GROUPS])
    add_similarities(lake)
    names = sorted({(name, digest) for scorers in (SCORERS, SCORERS_30M) for name, digest in scorers.items()})
    told = [{"digest": digest, "name": name, "commit": 1} for name, digest in names]
    lake.insert("scorers", pa.Table.from_pylist(told))


def add(lake: Lake, tables: list[str], first: int, last: int, n: int, prefix: str = "shard", number: int = 1) -> None:
    """Commit the rows that images ``first`` to ``last``, of one shard, add to ``tables``, as commit ``number``."""
    name = f"{prefix}{first // SHARD:05}"
    commit(lake, [write(lake, table, name, rows(table, first, last, n, prefix, SHARD), number) for table in tables])


def add_homes(lake: Lake, first: int, last: int, n: int, prefix: str = "shard", number: int = 1) -> None:
    """Insert the distinct contents of images ``first`` to ``last``."""
    for table, key in HOMES.items():
        made = _typed(lake, table, rows(table, first, last, n, prefix, SHARD), number)
        lake.execute(f"INSERT INTO {table} BY NAME {made} ORDER BY {key}")


def add_similarities(lake: Lake, number: int = 1) -> None:
    """Commit the similarities that `30m` lacks, with the digests of their inputs."""
    scorer = SCORERS_30M["image_similarity"]
    for items in pending_similarity(lake, plan_30m()):
        for item in items:
            found = {"sha256": item.keys, "input_digest": item.inputs["input_digests"]}
            lake.connection.register(
                "made_similarities", pa.table({key: pa.array(value) for key, value in found.items()})
            )
            made = f"SELECT *, 0.2 AS alt_similarity, 0.3 AS match_similarity, '{item.shard}' AS shard "
            made += "FROM made_similarities"
            written = write(lake, "image_similarity", item.shard, made, number, scorer=scorer, part=f"of-30m-{number}")
            lake.connection.unregister("made_similarities")
            commit(lake, [written])


def write(lake: Lake, table: str, shard: str, made: str, number: int = 1, scorer: str = "", part: str = "") -> Manifest:
    """Write the rows of SQL ``made`` to a file, and return its manifest.

    The scorer is the table's usual one unless another is named. ``part`` distinguishes the file from others of the
    shard.
    """
    name = f"{shard}-{part}" if part else shard
    path = f"{lake.staging(table, 'made')}/{name}.parquet"
    scorer = scorer or FILLED_BY.get(table, "")
    found = lake.table(f"{_typed(lake, table, made, number, scorer)} ORDER BY ALL")
    file = ParquetFile(path)
    file.write(found)
    n, (path, size, digest) = found.num_rows, file.close()
    return Manifest(table, f"{table}-{name}", shard, scorer, n, size, 1.0, path, number, "made", digest)


def _typed(lake: Lake, table: str, made: str, number: int, scorer: str = "") -> str:
    """Return SQL that adds scorer and commit to the rows, and casts every column to its type in the table."""
    whole = f"(SELECT *, '{scorer or FILLED_BY.get(table, '')}' AS scorer, {number} AS \"commit\" FROM ({made}))"
    given = {row[0] for row in lake.query(f"DESCRIBE {whole}")}
    names = [(row[0], row[1]) for row in lake.query(f"DESCRIBE {table}")]
    columns = (f"{_quoted(name) if name in given else 'NULL'}::{kind} AS {_quoted(name)}" for name, kind in names)
    return f"SELECT {', '.join(columns)} FROM {whole}"


def _quoted(name: str) -> str:
    return f'"{name}"'
