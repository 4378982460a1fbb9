"""What a cut reads, joined once and kept beside the lake: a changed threshold re-cuts in seconds.

A DuckDB file, attached as ``facts``, in which images and sentences are numbers instead of 32 digits:

- ``images(n, image_id, sha256, picture, repeated, group_id, cluster, ...)``: the occurrences that count, with the
  columns that rules read. In a cluster ``n`` rises as sha256(image_id || seed) does, by which the cap deals out its
  places; ``picture`` is a number for each sha256, ``repeated`` says that several images show it.
- ``sentences(sentence, content, silenced, repeats, ...)``: ``sentence`` rises as ``content`` does, so that ties by the
  one are ties by the other.
- ``matches(picture, sentence, similarity)``: the best 4 x top_k of each picture, each sentence once.

Its name is a digest of what it was made from: the files of every table read, the scorers, the seed. So it is never
changed, may be deleted at any time, and no cut can read an outdated one. The first cut after new facts makes it anew and
removes those of former facts: 37 CPU s at 1M images and 12M candidates, 530 at 10M in 2.6 GB of memory, 230 bytes an
image of disk; a cut from it takes 2.4 and 30.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import duckdb

from catalog import spill
from catalog.attach import quoted
from catalog.error import PairmillError
from catalog.lake import Lake
from catalog.plan import IMAGE_TABLES, SENTENCE_TABLES, Check, Plan, ScoreColumns, Stage
from catalog.superseded import gone, silenced
from catalog.worklist import current_scores

TABLES = ("images", "image_quality", "image_similarity", "image_groups", "clusters", "match_candidates", "sentences",
          "sentence_content", "sentence_quality", "superseded")  # fmt: skip
SCORERS = ("image_quality", "image_similarity", "image_groups", "image_clusters", "matches", "sentence_quality")
# Texts of any length, which few rules read: kept only for a recipe that does.
FREE_TEXTS = ("url", "alt_text", "text")
# 32 bits hold 4.29 billion: of more sentences the conversion says so. 64 take twice the memory in every join.
_NUMBER = "CAST(row_number() OVER () - 1 AS UINTEGER)"
# 64 bits that stand for an id. Of 800M some two are equal once in 58 lakes: then another way is taken.
WAYS = ("hash({0})", "hash('1' || {0})", "hash('2' || {0})", "{0}")


def use(lake: Lake, plan: Plan, upto: int | None = None) -> None:
    """Attach ``facts`` as of commit ``upto`` (the newest when None) for this plan; make them where there are none."""
    folder, of_plan = _folder(lake), _of_plan(plan, upto)
    path = folder / f"{_of_data(lake)}-{of_plan}.duckdb"
    attached = lake.query("SELECT path FROM duckdb_databases() WHERE database_name = 'facts'")
    if attached == [(str(path),)]:
        return
    if attached:
        lake.execute("DETACH facts")
    if not path.exists():
        path = _make(lake, plan, upto, folder, of_plan)
    lake.execute(f"ATTACH {quoted(str(path))} AS facts (READ_ONLY)")


def best_candidates(plan: Plan) -> int:
    """How many candidates of a picture count: 4 x top_k."""
    return 4 * plan.recipe.association.top_k


def image_checks(plan: Plan) -> list[Check]:
    """The rules that the facts' columns decide: those on captions bite later."""
    return [check for check in plan.image_checks if check.stage < Stage.CAPTION]


def _folder(lake: Lake) -> Path:
    """Beside a local lake; of a lake on S3, or that must not be written to, where temporary files go."""
    beside = Path(lake.query("SELECT current_setting('temp_directory')")[0][0]).parent
    if beside != Path(tempfile.gettempdir()):
        folder = beside / ".facts"
        folder.mkdir(exist_ok=True)
        return folder
    mine = beside / f"pairmill-facts-{os.getuid()}"
    mine.mkdir(mode=0o700, exist_ok=True)
    if mine.stat().st_uid != os.getuid():
        raise PairmillError(f"{mine} belongs to another user. Set TMPDIR to a folder of your own.")
    folder = mine / hashlib.sha256(lake.data_path.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder


def _of_data(lake: Lake) -> str:
    """16 digits for the rows of all tables read: their files, which never change, and those that name deleted rows."""
    digest = hashlib.sha256(lake.data_path.encode())
    for table in TABLES:
        files = lake.query(f"SELECT data_file, delete_file FROM ducklake_list_files('lake', '{table}') ORDER BY ALL")
        digest.update(json.dumps([table, files]).encode())
    return digest.hexdigest()[:16]


def _of_plan(plan: Plan, upto: int | None) -> str:
    """16 digits for what of a plan the facts depend on, and for the program that writes them."""
    asked = (
        duckdb.__version__,
        plan.recipe.seed,
        best_candidates(plan),
        [plan.scorer(table) for table in SCORERS],
        _texts(image_checks(plan)),
        _texts(plan.sentence_checks),
        upto,
    )
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _texts(checks: Sequence[Check]) -> list[str]:
    return sorted({column for check in checks for column in check.columns} & set(FREE_TEXTS))


def _make(lake: Lake, plan: Plan, upto: int | None, folder: Path, of_plan: str) -> Path:
    """Written under a name of its own, which the next to open the lake removes if this process is killed."""
    unfinished = Path(spill.folder(str(folder.parent)))
    unfinished.mkdir()

    def snapshot() -> str:
        _fill(lake, plan, upto)
        return _of_data(lake)

    try:
        lake.execute(f"ATTACH {quoted(str(unfinished / folder.name))} AS making")
        try:
            of_data = lake.retrying(snapshot)
        finally:
            lake.execute("DETACH making")
        for former in folder.glob("*.duckdb"):
            if not former.name.startswith(f"{of_data}-"):
                former.unlink(missing_ok=True)
        return (unfinished / folder.name).rename(folder / f"{of_data}-{of_plan}.duckdb")
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fill(lake: Lake, plan: Plan, upto: int | None) -> None:
    said = "" if upto is None else f" WHERE commit <= {upto}"
    counted = f"(SELECT * FROM images{said}) i ANTI JOIN {gone(upto)} g ON g.document_id = i.document_id"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_pictures AS SELECT sha256, {_NUMBER} AS picture, "
        f"shown > 1 AS repeated FROM (SELECT sha256, count(*) AS shown FROM {counted} GROUP BY sha256)"
    )
    _images(lake, plan, upto, counted)
    of_sentence = _way(lake, "sentence_content", "content")
    _sentences(lake, plan, upto, of_sentence)
    _matches(lake, plan, upto, of_sentence)
    lake.execute("DROP TABLE facts_pictures; DROP TABLE facts_contents")


def _images(lake: Lake, plan: Plan, upto: int | None, counted: str) -> None:
    images, *scores = [table for table in IMAGE_TABLES if table.stage < Stage.CAPTION]
    own = ", ".join(f"i.{name}" for name in _kept(images, image_checks(plan)))
    joins = "".join(
        f" LEFT JOIN {current_scores(plan, table.table, 'sha256', upto)} {table.table} USING (sha256)"
        for table in scores
    )
    measured = ", ".join(
        f"{table.table}.{source} AS {name}" for table in scores for name, source in table.source.items()
    )
    visible = "" if upto is None else f" AND commit <= {upto}"
    clusters = f"(SELECT key, cluster FROM clusters WHERE scorer = '{plan.scorer('image_clusters')}'{visible})"
    # What is sorted and numbered is written in a second step: in one it took three times as long.
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_images AS SELECT {_NUMBER} AS n, * FROM (SELECT i.image_id, i.sha256, "
        f"p.picture, p.repeated, g.group_id, k.cluster, {own}, {measured} FROM (SELECT i.* FROM {counted}) i "
        f"JOIN facts_pictures p USING (sha256){joins} LEFT JOIN ({_groups(plan, upto)}) g USING (sha256) "
        f"LEFT JOIN {clusters} k ON k.key = i.sha256 "
        # 80 bits of it order the few hundred images of a cluster.
        f"ORDER BY k.cluster, left(sha256(i.image_id || '{plan.recipe.seed}'), 20))"
    )
    lake.execute("CREATE OR REPLACE TABLE making.images AS FROM facts_images")
    lake.execute("DROP TABLE facts_images")


def _groups(plan: Plan, upto: int | None) -> str:
    """SQL: the groups of the newest grouping that ``upto`` may see; each grouping is a whole snapshot.

    A group has the id of its smallest member, which is in it, named or not.
    """
    where = f"scorer = '{plan.scorer('image_groups')}'" + ("" if upto is None else f" AND commit <= {upto}")
    newest = (
        f"SELECT sha256, group_id FROM image_groups WHERE {where} "
        f"AND commit = (SELECT max(commit) FROM image_groups WHERE {where})"
    )
    return (
        f"WITH newest AS ({newest}) FROM newest UNION ALL SELECT DISTINCT group_id, group_id FROM newest "
        "WHERE group_id NOT IN (SELECT sha256 FROM newest)"
    )


def _sentences(lake: Lake, plan: Plan, upto: int | None, of: str) -> None:
    where = "" if upto is None else f" WHERE commit <= {upto}"
    contents, *scores = SENTENCE_TABLES
    own = "".join(f", {name}" for name in _kept(contents, plan.sentence_checks) if name != "repeats")
    joins = "".join(
        f" LEFT JOIN (SELECT *, {of} AS h FROM {current_scores(plan, table.table, 'content', upto)}) {table.table} "
        "USING (h)"
        for table in scores
    )
    measured = ", ".join(
        f"{table.table}.{source} AS {name}" for table in scores for name, source in table.source.items()
    )
    repeats = (
        f"SELECT {of} AS h, count(*) AS repeats FROM (SELECT * FROM sentences{where}) s ANTI JOIN {gone(upto)} g "
        "ON g.document_id = s.document_id GROUP BY h"
    )
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_contents AS SELECT {_NUMBER} AS sentence, {of} AS h, * FROM "
        f"(SELECT content{own} FROM sentence_content{where} ORDER BY content)"
    )
    lake.execute(
        f"CREATE OR REPLACE TABLE making.sentences AS SELECT sentence, i.content, i.content IN {silenced(upto)} AS "
        f"silenced, r.repeats{own}, {measured} FROM facts_contents i{joins} LEFT JOIN ({repeats}) r USING (h)"
    )


def _kept(table: ScoreColumns, checks: Sequence[Check]) -> list[str]:
    return [name for name in table.columns if name not in FREE_TEXTS or name in _texts(checks)]


def _matches(lake: Lake, plan: Plan, upto: int | None, of_sentence: str) -> None:
    """One range of one run gives a picture no more than are kept: only pictures that met several are ranked.

    The window leaves a picture's matches side by side, so that a join looks a picture up once for all of them.
    """
    visible = "" if upto is None else f" AND commit <= {upto}"
    of_picture = _way(lake, "image_content", "sha256")
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_found AS SELECT picture, sentence, similarity FROM "
        f"(SELECT {of_picture} AS p, {of_sentence} AS s, similarity FROM match_candidates "
        f"WHERE scorer = '{plan.scorer('matches')}'{visible}) "
        f"JOIN (SELECT {of_picture} AS p, picture FROM facts_pictures) USING (p) "
        "JOIN (SELECT h AS s, sentence FROM facts_contents) USING (s) "
        "QUALIFY sentence IS DISTINCT FROM lag(sentence) OVER (PARTITION BY picture ORDER BY sentence, similarity DESC)"
    )
    most = best_candidates(plan)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE facts_many AS SELECT picture FROM facts_found GROUP BY picture "
        f"HAVING count(*) > {most}"
    )
    lake.execute(
        "CREATE OR REPLACE TABLE making.matches AS FROM facts_found ANTI JOIN facts_many USING (picture) UNION ALL "
        "SELECT * FROM facts_found SEMI JOIN facts_many USING (picture) "
        f"QUALIFY row_number() OVER (PARTITION BY picture ORDER BY similarity DESC, sentence) <= {most}"
    )
    lake.execute("DROP TABLE facts_found; DROP TABLE facts_many")


def _way(lake: Lake, table: str, key: str) -> str:
    """SQL: what stands for the ids ``key``, all of which are in ``table``: the first of WAYS by which no two are equal.

    Joined by 64 bits, 114M candidates and 36M sentences take half the time and a third of the memory that 32 digits do.
    """
    for way in (way.format(key) for way in WAYS):
        equal = f"SELECT {way} FROM {table} GROUP BY {way} HAVING count(*) > 1"
        doubled = f"SELECT 1 FROM {table} WHERE {way} IN ({equal}) GROUP BY {way} HAVING count(DISTINCT {key}) > 1"
        if not lake.query(f"{doubled} LIMIT 1"):
            return way
    raise AssertionError("unreachable: the last way is the id itself")
