"""List pending work: the items that are eligible so far, minus those that have this score from this scorer.

This one anti-join implements resuming, incremental ingest and a changed captioner. Shards in which nothing is pending
are recorded and skipped before the join on keys (`catalog.pending.asked_shards`).
A score of texts is stale, too, if the digest of its input texts has changed.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, compress

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.asked_shards import AskedShards
from pairmill.catalog.pending.chosen_captions import text_digest
from pairmill.catalog.pending.eligible import current_scores, surviving_images, surviving_sentences
from pairmill.catalog.pending.generated import fusion_digest
from pairmill.catalog.pending.item import WorkItem, group_neighbours
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.pending.training import Kind
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.score import Score, Stage

# Keys per round, which are held as Python strings: about 600 MB. 2.1B sentences are 420 rounds.
ROUND = 5_000_000
BY_OCCURRENCE = {"url", "alt_text", "position", "repeats"}  # the columns of rules that differ between occurrences
# Columns of ``synthetic`` that hold the model's answer.
SYNTHETIC = ("prompt", "synthetic_text", "synthetic_status", "n_tokens", "seconds", "finish_reason",
             "prompt_tokens", "retries", "synthetic_unsupported")  # fmt: skip
# Inputs that identify the request and the row to replace.
REPLACED = ("input_digests", "before")


def rounds(shards: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Batch shards, given as (shard, rows), into rounds of at most ROUND rows; yield one empty round without shards.

    A shard with more rows gets a round of its own.
    """
    run: list[str] = []
    held = 0
    for shard, n in shards:
        if run and held + n > ROUND:
            yield run
            run, held = [], 0
        run.append(shard)
        held += n
    yield run


def items_by_shard(
    lake: Lake,
    sql: str,
    paths_of: Callable[[list[str]], Mapping[str, tuple[str, ...]]],
    inputs: Sequence[str] = (),
    tables: tuple[str, ...] = (),
    size: str = "count(*)",
) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items, one a shard, over the rows of ``sql``; one empty round if there are none.

    ``sql`` returns the columns ``shard``, ``key`` and those of ``inputs``; an item's inputs are in the order of its
    keys. ``tables`` are the scores that the rows lack; ``size`` is SQL (an aggregate) for an item's size in a round of
    ROUND. ``paths_of`` returns the files to read by shard. DuckDB holds the rows of all rounds, and spills them if
    necessary. Only those of one round are collected to lists, which cannot be spilled.
    """
    lists = "".join(f", list({name} ORDER BY key) AS {name}" for name in inputs)
    lake.execute(f"CREATE OR REPLACE TEMP TABLE pending_rows AS {sql}")
    mine = f"""SELECT shard, list(key ORDER BY key) AS keys{lists} FROM pending_rows
        WHERE shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY shard ORDER BY shard"""
    for run in rounds(lake.query(f"SELECT shard, {size} FROM pending_rows GROUP BY shard ORDER BY shard")):
        paths = paths_of(run)
        yield [
            WorkItem(shard, tuple(keys), paths[shard], tables, dict(zip(inputs, values, strict=True)))
            for shard, keys, *values in (lake.query(mine, (run,)) if run else [])
        ]


def pending_images(lake: Lake, plan: Plan, tables: Sequence[str], stage: Stage) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items over distinct images that pass the rules so far and lack a row in any of ``tables``.

    Items are by home shard. Rounds bound the memory for a lake of any size; there is at least one, possibly empty.
    """
    checks = [check for check in plan.image_checks if check.stage < stage]
    rows = surviving_images(plan, checks, "pending_shards")
    return _pending(lake, plan, tables, "image_content", "sha256", rows, "payloads", checks)


def pending_sentences(lake: Lake, plan: Plan, tables: Sequence[str], stage: Stage) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items over distinct sentences, as `pending_images` does over images."""
    checks = [check for check in plan.sentence_checks if check.stage < stage]
    rows = surviving_sentences(plan, checks, "pending_open", "pending_shards")
    return _pending(lake, plan, tables, "sentence_content", "content", rows, "sentences", checks)


def _pending(
    lake: Lake, plan: Plan, tables: Sequence[str], content: str, key: str, rows: str, payload: str, checks: list[Check]
) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items over contents that lack a row in any of ``tables``.

    ``rows`` is SQL of the eligible keys, which pass ``checks``. It may leave out keys of finished shards: it can
    restrict itself to the tables ``pending_open`` (contents of the unfinished shards) and ``pending_shards``.
    """
    if not tables:
        yield []
        return
    fills = [(table, plan.scorer(table)) for table in tables]
    reads = {table for check in checks for table in check.tables}
    by_occurrence = any(not BY_OCCURRENCE.isdisjoint(check.columns) for check in checks)
    asked = AskedShards(lake, fills, reads, rows, by_occurrence, (content, key, payload))
    shards = asked.open_shards()
    contents = dict(shards)
    for run in rounds(shards):
        items = _pending_in(lake, plan, tables, content, key, rows, payload, run) if run else []
        yield items
        asked.end_round({shard: contents[shard] for shard in run}, items)


def _pending_in(
    lake: Lake, plan: Plan, tables: Sequence[str], content: str, key: str, rows: str, payload: str, shards: list[str]
) -> list[WorkItem]:
    """Return the work items of one round, the shards ``shards``; one item per shard and set of missing tables."""
    lake.execute("CREATE OR REPLACE TEMP TABLE pending_shards AS SELECT unnest(?::VARCHAR[]) AS shard", (shards,))
    of_shard = "shard IN (SELECT shard FROM pending_shards)"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE pending_open AS SELECT {key}, shard FROM {content} WHERE {of_shard}")
    # Scores without any row in the unfinished shards are not joined: saves a fifth of the time at 10M images.
    begun = lake.query(
        'SELECT DISTINCT "table", scorer FROM partitions WHERE rows > 0 AND shard IN (SELECT shard FROM pending_shards)'
    )
    looked_for = [(table, plan.scorer(table)) in begun for table in tables]
    lacking = [f"t{n}.{key} IS NULL" if looked else "true" for n, looked in enumerate(looked_for)]
    joins = "".join(
        f" LEFT JOIN (SELECT {key} FROM {table} WHERE scorer = '{plan.scorer(table)}' AND {of_shard}) t{n} "
        f"ON t{n}.{key} = c.{key}"
        for n, table in enumerate(tables)
        if looked_for[n]
    )
    flags = ", ".join(f"{lack} AS f{n}" for n, lack in enumerate(lacking))
    groups = ", ".join(f"f{n}" for n in range(len(tables)))
    # A shard's keys, which contain no spaces, come as one string: 1.9M are read in 0.04 s, against 1.5 s as lists.
    found = lake.query(f"""SELECT shard, {groups}, string_agg({key}, ' ' ORDER BY {key}) FROM (
        SELECT c.shard, c.{key}, {flags} FROM pending_open c SEMI JOIN ({rows}) e ON e.{key} = c.{key}{joins}
        WHERE {" OR ".join(lacking)}) GROUP BY ALL ORDER BY shard, {groups}""")
    lake.execute("DROP TABLE pending_open; DROP TABLE pending_shards")
    paths = paths_by_shard(lake, payload, {row[0] for row in found})
    return [
        WorkItem(shard, tuple(keys.split(" ")), paths[shard], tuple(compress(tables, lacks)))
        for shard, *lacks, keys in found
    ]


def sorted_by_payload(lake: Lake, item: WorkItem) -> list[str]:
    """Return an item's images in the order in which its shard's payload files store them; missing images come last."""
    rows = lake.query("SELECT sha256 FROM payloads WHERE shard = ? ORDER BY rowid", (item.shard,))
    place = {sha: n for n, (sha,) in enumerate(rows)}
    return sorted(item.keys, key=lambda sha: (place.get(sha, len(place)), sha))


def pending_vectors(lake: Lake, plan: Plan, score: Score) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items for ``score``, computed from vectors: contents with a vector that lack the score.

    Each item reads the files of its vectors.
    """
    vectors = plan.scorer(score.vector_table)
    sql = f"""SELECT shard, v.{score.key} AS key FROM {score.vector_table} v
        ANTI JOIN (SELECT {score.key} FROM {score.table} WHERE scorer = '{plan.scorer(score.table)}') s
        ON s.{score.key} = v.{score.key} WHERE v.scorer = '{vectors}'"""
    files = partial(paths_by_shard, lake, score.vector_table, scorer=vectors)
    return items_by_shard(lake, sql, files, tables=(score.table,))


# Vectors per work item: 131,072 of 1,024 dimensions take 1.3 GB in the worker. A smaller lake is split into 64 items.
ASSIGNED, MANY_ITEMS = 131_072, 64


def pending_assignment(lake: Lake, plan: Plan, kind: Kind, clusters: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items: vectors that the scorer ``clusters`` has not assigned, with the files that hold them.

    An item is one shard, or several small ones of at most ASSIGNED vectors, as each writes an index file, and every
    range of clusters opens all of them. DuckDB holds the keys of all rounds, spilled if necessary: 50 GB for 800M.
    """
    digests = (clusters, plan.scorer(kind.table))
    sql = f"""CREATE OR REPLACE TEMP TABLE unassigned AS SELECT e.shard, e.{kind.key} AS key FROM {kind.table} e
        LEFT JOIN (SELECT key FROM clusters WHERE scorer = ?) c ON c.key = e.{kind.key}
        WHERE e.scorer = ? AND e.{kind.column} IS NOT NULL AND c.key IS NULL"""
    lake.execute(sql, digests)
    sizes = lake.query("SELECT shard, count(*) FROM unassigned GROUP BY shard ORDER BY shard")
    most = min(ASSIGNED, sum(n for _, n in sizes) // MANY_ITEMS)
    for run in rounds(sizes):
        among = "shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY shard ORDER BY shard"
        keys = f"SELECT shard, list(DISTINCT key ORDER BY key) FROM unassigned WHERE {among}"
        found = lake.query(keys, (run,)) if run else []
        files = paths_by_shard(lake, kind.table, run, plan.scorer(kind.table))
        items = [WorkItem(shard, tuple(each), files[shard], ("clusters",)) for shard, each in found]
        yield merge_small_items(items, most)
    lake.execute("DROP TABLE temp.unassigned")


def merge_small_items(items: Sequence[WorkItem], most: int) -> list[WorkItem]:
    """Merge neighbouring items of at most ``most`` keys together into one, with a shard name hashed from theirs."""
    merged = []
    for group in group_neighbours(items, most):
        shard = hashlib.sha256("\x1f".join(item.shard for item in group).encode()).hexdigest()[:32]
        keys = tuple(chain.from_iterable(item.keys for item in group))
        paths = tuple(chain.from_iterable(item.paths for item in group))
        merged.append(group[0] if len(group) == 1 else WorkItem(shard, keys, paths, group[0].tables))
    return merged


def pending_in_wave(
    lake: Lake, plan: Plan, table: str, scorer: str, of_vectors: bool = False, asked: str = "wave_asked"
) -> Iterator[list[WorkItem]]:
    """Yield work items by home shard: images of the wave that lack a row of ``scorer`` (a digest) in ``table``.

    They read the files of image bytes, or with ``of_vectors`` of vectors. ``asked`` is SQL for other images.
    """
    sql = f"""SELECT c.shard, c.sha256 AS key FROM image_content c SEMI JOIN {asked} k ON k.sha256 = c.sha256
        ANTI JOIN (SELECT sha256 FROM {table} WHERE scorer = '{scorer}') s ON s.sha256 = c.sha256"""
    files = vector_files(lake, plan) if of_vectors else partial(paths_by_shard, lake, "payloads")
    return items_by_shard(lake, sql, files)


def pending_text_similarity(lake: Lake, plan: Plan, score: Score, texts: str, column: str) -> Iterator[list[WorkItem]]:
    """Yield work items: images of the wave whose text ``texts.column`` has changed since ``score`` was computed."""
    wanted = f"""SELECT v.shard, v.sha256, c.{column} AS texts, {text_digest(f"c.{column}")} AS digest
        FROM {current_scores(plan, "image_embedding", "sha256")} v
        JOIN {current_scores(plan, texts, "sha256")} c ON c.sha256 = v.sha256
        SEMI JOIN wave_asked k ON k.sha256 = v.sha256"""
    return items_by_shard(lake, stale_rows(plan, score.table, wanted), vector_files(lake, plan), ("texts", *REPLACED))


def pending_fusion(lake: Lake, plan: Plan, alike: Sequence[str] = ()) -> Iterator[list[WorkItem]]:
    """Yield work items: images of the wave whose caption, tags or sentence have changed since ``synthetic`` was fused.

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
        other AS ({stale_rows(plan, "synthetic", "SELECT * FROM digested")}),
        answers AS (SELECT s.sha256, arg_max({{{answer}}}, s."commit") AS known FROM synthetic s
            JOIN other ON other.key = s.sha256 AND other.input_digests = s.input_digest
            WHERE s.scorer IN ({by}) GROUP BY s.sha256)
        SELECT w.*, k.known FROM other w LEFT JOIN answers k ON k.sha256 = w.key"""
    inputs = ("captions", "tags", "sentences", *REPLACED, "known")
    return items_by_shard(lake, sql, partial(paths_by_shard, lake, "payloads"), inputs)


def stale_rows(plan: Plan, table: str, wanted: str, current: str = "", same: str = "") -> str:
    """Return SQL, for `items_by_shard`, of rows of ``wanted`` without a row of the same input digest in ``table``.

    ``wanted`` is a query of shard, sha256, digest and inputs; ``current`` is SQL of the current rows of a table with
    several rows an image, of which ``same`` is the condition on that of ``w``.
    """
    return f"""SELECT w.* EXCLUDE (digest, sha256), w.sha256 AS key, w.digest AS input_digests,
        coalesce(s."commit", -1) AS before FROM ({wanted}) w
        LEFT JOIN {current or current_scores(plan, table, "sha256")} s ON s.sha256 = w.sha256{same}
        WHERE s.input_digest IS DISTINCT FROM w.digest"""


def vector_files(lake: Lake, plan: Plan) -> Callable[[list[str]], dict[str, tuple[str, ...]]]:
    """Return the function from shards to the files of their images' vectors."""
    return partial(paths_by_shard, lake, "image_embedding", scorer=plan.scorer("image_embedding"))
