"""Extend the facts of a cut by the rows that came since, so that what is new costs what is new.

Every row of the lake has a commit number. If each table has as many rows up to the facts' last commit as when they were
made, and nothing was taken down, rows were only added, whatever files were merged. Then the pictures and sentences that
the new rows are about are computed anew, by the statements that make facts from nothing; the others stay, their numbers
too. A removal, a forgotten scorer or a retry takes rows away: then all facts are made from nothing.

New rows are about their own key; further about the pictures and sentences of a document that is gone or back, members
of duplicate groups that changed, and pictures that have such a sentence among their candidates. What still grows with
the lake is a pass over the keys of each table, and the copy of the file.
"""

from collections.abc import Iterable

from pairmill.catalog.cut import facts_tables
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write.recorded_removals import last_removal

PICTURE, SENTENCE = "making.picture_of(sha256)", "making.key_of(content)"
_TEMPORARY = ("new_groups", "new_pictures", "new_images", "new_sentences", "new_matched", "facts_pictures",
              "facts_duplicates")  # fmt: skip


def record(lake: Lake) -> None:
    """Write ``making.seen(name, n, newest)``: the rows of each table, and its newest commit."""
    lake.execute(f"CREATE OR REPLACE TABLE making.seen AS {_counted(lake, '')}")


def extend(lake: Lake, plan: Plan) -> bool:
    """Bring the facts in ``making`` up to date; return False if they must be made from nothing, then undefined."""
    upto = lake.query("SELECT coalesce(max(newest), 0) FROM making.seen")[0][0]
    before = _counted(lake, f'WHERE "commit" <= {upto}')
    same, sparse = lake.query(
        f"SELECT (SELECT count(*) FROM ({before}) JOIN making.seen USING (name, n)), "
        "(SELECT max(rowid) > 2 * count(*) FROM making.images)"  # images that are computed anew get new rows
    )[0]
    since, taken = f'"commit" > {upto}', same < len(facts_tables.tables_read(lake)) or last_removal(lake) > upto
    if taken or sparse or not _are_new(lake, since, upto):
        return False
    lake.execute(f"INSERT INTO making.contents SELECT {SENTENCE} FROM sentence_content WHERE {since} ORDER BY content")
    facts_tables.sentence_groups(lake, plan, SENTENCE)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE new_groups AS SELECT sentence, s.duplicates AS before, d.duplicates AS now FROM "
        "(SELECT sentence, duplicates FROM making.sentences WHERE duplicates IS NOT NULL) s "
        "FULL JOIN facts_duplicates d USING (sentence) WHERE s.duplicates IS DISTINCT FROM d.duplicates"
    )
    if lake.query(  # a former group is in parts now: matches had one of its members, and lack those of other parts
        "SELECT 1 FROM new_groups g LEFT JOIN facts_duplicates d ON d.sentence = g.before "
        "WHERE g.before IS NOT NULL AND g.now IS DISTINCT FROM d.duplicates LIMIT 1"
    ):
        return False
    _list_new(lake, plan, since)
    _rewrite(lake, plan)
    lake.execute("; ".join(f"DROP TABLE {table}" for table in _TEMPORARY))
    return True


def _counted(lake: Lake, where: str) -> str:
    """Return SQL for a row a table that facts read: its name, number of rows that pass ``where``, highest commit."""
    return " UNION ALL ".join(
        f"SELECT '{table}' AS name, count(*) AS n, max(\"commit\") AS newest FROM {table} {where}"
        for table in facts_tables.tables_read(lake)
    )


def _are_new(lake: Lake, since: str, upto: int) -> bool:
    """Return whether the keys of the new contents differ from one another and from all others, as `fill` makes sure."""
    alike = (
        "WITH new AS (SELECT {0} AS key FROM {1} WHERE {2}) SELECT (SELECT count(*) - count(DISTINCT key) FROM new) + "
        "(SELECT count(*) FROM {3} WHERE key IN (FROM new))"
    )
    known = f'(SELECT {PICTURE} AS key FROM image_content WHERE "commit" <= {upto})'
    checks = (SENTENCE, "sentence_content", since, "making.contents"), (PICTURE, "image_content", since, known)
    return not any(lake.query(alike.format(*each))[0][0] for each in checks)


def _list_new(lake: Lake, plan: Plan, since: str) -> None:
    """Create ``new_pictures``, ``new_sentences`` and ``new_matched``: the keys to compute anew."""

    def create(name: str, key: str, tables: Iterable[str], *others: str) -> None:
        keys = " UNION ALL ".join([*(f"SELECT {key} AS key FROM {table} WHERE {since}" for table in tables), *others])
        lake.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT key FROM ({keys})")

    images, sentences = ([table.table for table in tables] for tables in facts_tables.score_tables(plan))
    of_new = f"document_id IN (SELECT document_id FROM {{}} WHERE {since})"
    gone = of_new.format("superseded") if lake.query(f"SELECT 1 FROM superseded WHERE {since} LIMIT 1") else "false"
    regrouped = (
        f"SELECT {PICTURE} FROM (SELECT i.sha256 FROM making.images i LEFT JOIN ({facts_tables.image_groups(plan)}) g "
        "ON g.sha256 = i.sha256 WHERE i.group_id IS DISTINCT FROM g.group_id)"
    )
    shown = f"SELECT {PICTURE} FROM images WHERE {of_new.format('documents')} OR {gone}"
    clusters = f"SELECT making.picture_of(key) FROM clusters WHERE {since}"
    create("new_pictures", PICTURE, ("images", *images), shown, clusters, regrouped)
    of_groups = "SELECT key FROM making.contents WHERE rowid IN (SELECT sentence FROM new_groups)"
    contents = ("sentences", "sentence_content", *sentences)
    create("new_sentences", SENTENCE, contents, of_groups, f"SELECT {SENTENCE} FROM sentences WHERE {gone}")
    pairs = ("match_candidates", *(table.table for _, table in plan.candidate_columns))
    candidates = (
        "SELECT key FROM making.pictures WHERE rowid IN (SELECT picture FROM (SELECT picture, unnest(sentences) AS s "
        "FROM making.matches) WHERE s IN (SELECT sentence FROM new_groups))"
    )
    create("new_matched", PICTURE, pairs, "SELECT key FROM new_pictures", candidates)


def _rewrite(lake: Lake, plan: Plan) -> None:
    """Compute the rows of ``new_pictures``, ``new_sentences`` and ``new_matched`` anew."""
    rows = "DELETE FROM making.{} WHERE {} IN (SELECT rowid FROM making.{} WHERE key IN (SELECT key FROM {}))"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE new_images AS FROM {facts_tables.CURRENT_IMAGES} "
        f"WHERE {PICTURE} IN (SELECT key FROM new_pictures)"
    )
    lake.execute(rows.format("images", "picture", "pictures", "new_pictures"))
    lake.execute(
        f"INSERT INTO making.pictures SELECT DISTINCT {PICTURE} AS key FROM new_images "
        "WHERE key NOT IN (SELECT key FROM making.pictures)"
    )
    facts_tables.number_pictures(lake, PICTURE, "new_images")
    facts_tables.write_images(lake, plan, "making.picture_of({})".format, "new_images", "new_pictures")
    lake.execute(rows.format("sentences", "sentence", "contents", "new_sentences"))
    facts_tables.write_sentences(lake, plan, SENTENCE, "new_sentences")
    lake.execute(rows.format("matches", "picture", "pictures", "new_matched"))
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_pictures AS SELECT key, {facts_tables.NUMBER} AS picture FROM "
        "making.pictures WHERE key IN (SELECT key FROM new_matched) AND rowid IN (SELECT picture FROM making.images)"
    )
    facts_tables.write_matches(lake, plan, PICTURE, SENTENCE, "new_matched")
