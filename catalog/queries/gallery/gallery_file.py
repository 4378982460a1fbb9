"""Build the gallery file: a DuckDB table with a row per image of a dataset version, or of the whole lake.

The file of a version also has a sample of its sentences: `_add_sentences`.

A page of a gallery is one scan of one local table: at 1M images, milliseconds instead of the seconds of a join of a
dozen tables of the lake. The file may be deleted at any time. Its name contains a digest of what it was built from: the
version, or for the whole lake the commits so far.

Columns that no rule reads begin with an underscore, which no score's name does, or have a name that scores may not use.
"""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import duckdb

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.lake.side_folders import cache_folder, oldest_first, scratch_folder
from pairmill.catalog.pending.eligible import current_scores, judged_sentences
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Plan, ScoreColumns, tables_of
from pairmill.catalog.write.recorded_removals import last_removal
from pairmill.catalog.write.runs import last_commit

LAYOUT = 5  # incremented when the columns or their storage change
AT_ONCE = 20_000  # images, of some 2 KB, joined by one statement
KEPT_FILES = 6  # gallery files per lake; the least recently opened are removed
LONGEST = 300  # characters of a text shown in a gallery, and of a sentence
SENTENCES = 20_000  # the share that a rule drops is known to within 0.7 % (95 %)
# How every reader connects to a gallery file: DuckDB refuses two configurations of one file in a process.
READER: dict[str, str | bool | int | float | list[str]] = {"enable_external_access": False}
_DOMAIN = "regexp_extract(coalesce(i.url, ''), '^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/?#@]*@)?([^/?#]*)', 1)"


def gallery_file(lake: Lake, dataset: Dataset | None) -> Path:
    """Return the path of the gallery file of ``dataset``, or of the whole lake if None; build the file if missing."""
    folder = cache_folder(lake, "browse")
    path = folder / f"gallery-{_digest(lake, dataset)}.duckdb"
    if path.exists() and _opens(path):
        with suppress(FileNotFoundError):  # removed by another process since
            os.utime(path)
            return path
    removed = last_removal(lake)
    with scratch_folder(folder) as unfinished:
        _build(lake, dataset, plan_of(lake, dataset) if dataset else None, unfinished / path.name)
        if dataset:
            _add_sentences(lake, dataset, unfinished / path.name)
        if last_removal(lake) != removed:  # the file may hold what was removed meanwhile
            return gallery_file(lake, dataset)
        (unfinished / path.name).rename(path)
    for old, _ in oldest_first(folder.glob("gallery-*.duckdb"))[:-KEPT_FILES]:
        old.unlink(missing_ok=True)
    return path


@contextmanager
def temporary_gallery_file(lake: Lake, dataset: Dataset, plan: Plan, most: int) -> Iterator[Path]:
    """Build a gallery file of at most ``most`` images of the dataset, cut by ``plan``, for the `with` block.

    The images are those with the smallest ids, which are hashes, so this is a random sample. 200,000 images take some
    100 MB below the temporary folder.
    """
    with scratch_folder() as folder:
        path, n = folder / "gallery.duckdb", lake.query(f"SELECT count(*) FROM ({_decisions(dataset)})")[0][0]
        _build(lake, dataset, plan, path, most if n > most else None, at_once=n <= AT_ONCE)
        yield path


def _digest(lake: Lake, dataset: Dataset | None) -> str:
    """Hash the inputs of the gallery file to 32 hex digits."""
    state = (str(dataset), dataset.run_id, dataset.content_digest, dataset.amended) if dataset else last_commit(lake)
    found = (LAYOUT, duckdb.__version__, lake.data_path, state, last_removal(lake))
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:32]


def _opens(path: Path) -> bool:
    """Return whether the file is a DuckDB database with the table; remove it if not."""
    try:
        with duckdb.connect(str(path), read_only=True, config=READER) as connection:
            connection.execute("SELECT 1 FROM images LIMIT 1").fetchall()
    except duckdb.Error:
        path.unlink(missing_ok=True)
        return False
    return True


def _build(
    lake: Lake, dataset: Dataset | None, plan: Plan | None, path: Path, most: int | None = None, at_once: bool = False
) -> None:
    """Write the table ``images``, in the order of ``image_id``, of one snapshot of the lake.

    What is joined is first written to a file of its own, table by table: a single statement of all joins takes 2.2 GB
    for 1M images, this 1.3 GB in the same seconds. With ``at_once`` it is one: 160 CPU ms for 400 images, not 290. Of a
    sample, the ids are chosen first, so that each score's table is read once and only rows of the sample are joined.
    """
    with nullcontext() if at_once else lake.pinned():
        lake.execute(f"ATTACH {quoted(str(path))} AS gallery")
        try:
            if most and dataset:
                lake.execute(f"CREATE TEMP TABLE gallery_sample AS {_images(dataset, dataset.commit, most)}")
            images, joined, columns = _parts(lake, dataset, plan, bool(most))
            place = "row_number() OVER (ORDER BY image_id) - 1 AS _place"
            sides = {"i": f"SELECT *, {place} FROM ({images})"} | {name: sql for name, (sql, _) in joined.items()}
            at = "" if at_once else "sides."
            joins = (f" LEFT JOIN {at}{name} ON {name}.{key} = i.{key}" for name, (_, key) in joined.items())
            rows = f"SELECT {', '.join(columns)} FROM {at}i{''.join(joins)} ORDER BY i._place"
            if at_once:
                first = ", ".join(f"{name} AS MATERIALIZED ({sql})" for name, sql in sides.items())
                rows = f"WITH {first} {rows}"
            else:
                lake.execute(f"ATTACH {quoted(str(path.with_suffix('.sides')))} AS sides")
                for name, sql in sides.items():
                    lake.execute(f"CREATE TABLE sides.{name} AS {sql}")
            lake.execute(f"CREATE TABLE gallery.images AS {rows}")
            lake.execute("CREATE UNIQUE INDEX by_place ON gallery.images (_place)")  # 61 rows in 2 CPU ms, not 40
        finally:
            lake.execute("DROP TABLE IF EXISTS temp.gallery_sample")
            for name in ("sides", "gallery"):
                lake.execute(f"DETACH DATABASE IF EXISTS {name}")


def _parts(
    lake: Lake, dataset: Dataset | None, plan: Plan | None, is_sample: bool
) -> tuple[str, dict[str, tuple[str, str]], list[str]]:
    """Return SQL for the images, name -> (SQL, key) of what is joined to them, and the columns of all.

    Joined are an image's document, what the version decided, its scores.
    """

    def among(table: str, key: str = "sha256", sample_key: str = "sha256") -> str:
        """Return SQL for the table's rows, of a sample only those of its images or documents."""
        sample = f"SEMI JOIN gallery_sample g ON g.{sample_key} = {table}.{key}"
        return f"(SELECT {table}.* FROM {table} {sample})" if is_sample else table

    upto = dataset.commit if dataset else last_commit(lake)
    tables = plan.image_tables if plan else tables_of("image", scores_in(lake))
    scored = [table for table in tables[1:] if table.table in lake.tables]
    own = [name for name in tables[0].columns if name not in ("url", "alt_text")]
    columns = ["i._place", "i.image_id", "i.sha256", "i.document_id", "h.shard", f"{_DOMAIN} AS _domain"]
    columns += ["coalesce(i.url, '') AS url", "coalesce(i.alt_text, '') AS alt_text", *(f"i.{name}" for name in own)]
    columns += ["d.page AS _page", "coalesce(d.source, '') AS _source"]
    columns += ["coalesce(d.language, l.language, '') AS _language", "if(p.image_id IS NULL, t.tags, p.tags) AS _tags"]
    columns += ["v.dropped_by", "v.value AS _value", "p.text1 AS _text1", "p.caption AS _caption"]
    columns += ["p.syn_text AS _fused", "k.cluster", "g.group_id"]
    columns += [f"s{n}.{name}" for n, table in enumerate(scored) for name in table.columns]
    homes = f"SELECT sha256, any_value(shard) AS shard FROM {among('image_content')} WHERE commit <= {upto}"
    texts = ", ".join(f"left({name}, {LONGEST}) AS {name}" for name in ("text1", "caption", "syn_text"))
    pairs = f"SELECT image_id, tags, {texts} FROM pairs WHERE {dataset.where if dataset else 'false'}"
    joined = {
        "h": (f"{homes} GROUP BY sha256", "sha256"),
        "d": (_documents(among("documents", "document_id", "document_id"), upto), "document_id"),
        "l": (_languages(among("sentences", "document_id", "document_id"), upto), "document_id"),
        "v": (_decisions(dataset), "image_id"), "p": (pairs, "image_id"),
        "k": (_clusters(lake, among("clusters", "key"), dataset, upto), "sha256"),
        "g": (_groups(lake, dataset, upto), "sha256"),
        "t": (_newest(among("tags"), "sha256", "tags", upto, plan and plan.scorer("tags")), "sha256"),
    }  # fmt: skip
    joined |= {f"s{n}": (_scores(plan, table, upto, is_sample), "sha256") for n, table in enumerate(scored)}
    return "SELECT * FROM gallery_sample" if is_sample else _images(dataset, upto), joined, columns


def _images(dataset: Dataset | None, upto: int, most: int | None = None) -> str:
    """Return SQL for the images: those that the version decided on (``most`` of them), else all that count now."""
    if dataset:
        first = f" ORDER BY item_id LIMIT {most}" if most else ""
        among = f"SEMI JOIN ({_decisions(dataset)}{first}) USING (image_id)"
    else:
        among = f"ANTI JOIN {gone_documents()} g ON g.document_id = o.document_id"
    once = "QUALIFY row_number() OVER (PARTITION BY image_id ORDER BY commit DESC) = 1"
    return f"SELECT o.* FROM images o {among} WHERE o.commit <= {upto} {once}"


def _documents(documents: str, upto: int) -> str:
    language = "json_extract_string(try_cast(metadata AS JSON), '$.language')"
    return f"""SELECT document_id, any_value(uri) AS page, any_value(source) AS source,
        any_value({language}) AS language FROM {documents} WHERE commit <= {upto} GROUP BY document_id"""


def _languages(sentences: str, upto: int) -> str:
    """Return SQL for the most frequent language of each document's sentences."""
    of_sentence = _newest("sentence_quality", "content", "language", upto, "")
    return f"""SELECT document_id, mode(language) AS language FROM {sentences} s JOIN ({of_sentence}) USING (content)
        WHERE s.commit <= {upto} GROUP BY document_id"""


def _decisions(dataset: Dataset | None) -> str:
    where = f"{dataset.where} AND kind = 'image'" if dataset else "false"
    return f"SELECT item_id AS image_id, dropped_by, value FROM decisions WHERE {where}"


def _clusters(lake: Lake, clusters: str, dataset: Dataset | None, upto: int) -> str:
    """Return SQL for the clusters that the cap used, or of the newest scorer of such clusters."""
    rows = lake.query("SELECT digest FROM scorers WHERE name = ? ORDER BY commit DESC", (SURVIVORS.clusters,))
    digest = next((digest for (digest,) in rows if dataset is None or digest in dataset.scorers), "")
    return f"""SELECT key AS sha256, any_value(cluster) AS cluster FROM {clusters} WHERE scorer = {quoted(digest)}
        AND commit <= {upto} GROUP BY key"""


def _groups(lake: Lake, dataset: Dataset | None, upto: int) -> str:
    """Return SQL for the newest duplicate groups; each grouping is a complete snapshot."""
    by = f"scorer IN ({', '.join(map(quoted, dataset.scorers)) or 'NULL'})" if dataset else "true"
    known = f"FROM image_groups WHERE {by} AND commit <= {upto}"
    newest = f"SELECT sha256, group_id {known} AND commit = (SELECT max(commit) {known})"
    return f"SELECT sha256, any_value(group_id) AS group_id FROM ({newest}) GROUP BY sha256"


def _scores(plan: Plan | None, table: ScoreColumns, upto: int, is_sample: bool) -> str:
    """Return SQL that selects a score's columns, named as in rules."""
    columns = ", ".join(f"{source} AS {name}" for name, source in table.source.items())
    if plan:
        only = "sha256 IN (SELECT sha256 FROM gallery_sample)" if is_sample else ""
        return f"SELECT sha256, {columns} FROM {current_scores(plan, table.table, 'sha256', upto, only)}"
    return _newest(table.table, "sha256", columns, upto, "")


def _newest(table: str, key: str, columns: str, upto: int, scorer: str | None) -> str:
    """Return SQL for the newest row of each key by ``scorer``; by any scorer if that is ''."""
    by = f" AND scorer = {quoted(scorer)}" if scorer else ""
    return f"""SELECT {key}, {columns} FROM {table} WHERE commit <= {upto}{by}
        QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit DESC) = 1"""


def _add_sentences(lake: Lake, dataset: Dataset, path: Path) -> None:
    """Write the table ``sentences`` into the DuckDB file ``path``: SENTENCES distinct sentences, ordered by content.

    The sample has the smallest content ids. Ids are hashes, so the sample is random. One scan of all distinct sentences
    finds it; scores are joined to the sample alone. Columns: content, text, shard, each column that a rule on sentences
    reads, ``dropped_by`` ('' or the first failed rule) and ``dropped_value``.
    """
    with lake.pinned():
        lake.execute(f"ATTACH {quoted(str(path))} AS gallery")
        try:
            known = f"sentence_content WHERE commit <= {dataset.commit} ORDER BY content LIMIT {SENTENCES}"
            lake.execute(f"CREATE TEMP TABLE sampled_sentences AS SELECT content, text, shard FROM {known}")
            judged = judged_sentences(plan_of(lake, dataset), dataset.commit, "sampled_sentences")
            columns = f"* REPLACE (left(text, {LONGEST}) AS text)"
            lake.execute(f"CREATE TABLE gallery.sentences AS SELECT {columns} FROM ({judged}) ORDER BY content")
        finally:
            lake.execute("DROP TABLE IF EXISTS temp.sampled_sentences")
            lake.execute("DETACH gallery")
