"""Extend the facts of a cut by the rows that came since, so that what is new costs what is new.

Every row of the lake has a commit number. If each table has as many rows up to the facts' last commit as when they were
made, and nothing was taken down, rows were only added, whatever files were merged. Then the pictures and sentences that
the new rows are about are computed anew, by the statements that make facts from nothing; the others stay, their numbers
too. A removal, a forgotten scorer or a retry takes rows away: then all facts are made from nothing.

New rows are about their own key; further about the pictures and sentences of a document that is gone or back, members
of duplicate groups that changed, and pictures that have such a sentence among their candidates. Scores, counts and
candidates that had a row stay, and only the files of new rows are read. What still grows with the lake is passes over
the keys of pictures and sentences, and one over the rows of images.
"""

from collections.abc import Iterable, Mapping

from pairmill.catalog.cut import facts_tables
from pairmill.catalog.cut.facts_matches import NUMBER, SENTENCE_NUMBERS, write_matches
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.snapshot import RowCounts
from pairmill.catalog.pending.changed_inputs import count_rows
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.write.recorded_removals import last_removal

PICTURE, SENTENCE = "making.picture_of(sha256)", "making.key_of(content)"
_TEMPORARY = ("new_groups", "new_pictures", "new_images", "new_sentences", "new_matched", "facts_pictures",
              "new_numbers", "facts_duplicates", "images_before", "sentences_before", "matches_before")  # fmt: skip
# Columns of former rows that are used. Ids and other long ones, which are made anew, take half of the time to read.
_USED = {"images": "* EXCLUDE (image_id, sha256, shard, occurrence, group_id)", "sentences": "* EXCLUDE (member)",
         "matches": "*"}  # fmt: skip


def record(lake: Lake, counted: Mapping[str, RowCounts]) -> None:
    """Write ``making.seen(name, n, newest)``: the rows of each table, and its newest commit; that of removals, too."""
    seen = [*((name, each.rows, each.newest) for name, each in counted.items()), ("removals", 0, last_removal(lake))]
    rows = ", ".join(map(str, seen))
    lake.execute(f"CREATE OR REPLACE TABLE making.seen AS FROM (VALUES {rows}) s(name, n, newest)")


def extend(lake: Lake, plan: Plan, catalog: str) -> bool:
    """Bring the facts in ``making`` up to date; return False if they must be made from nothing, then undefined."""
    seen = {name: (n, newest) for name, n, newest in lake.query("SELECT name, n, coalesce(newest, 0) FROM making.seen")}
    upto = max(newest for _, newest in seen.values())
    # Images that are computed anew get new rows.
    sparse = lake.query("SELECT max(rowid) > 2 * count(*) FROM making.images")[0][0]
    since, counted = f'"commit" > {upto}', count_rows(lake, facts_tables.tables_read(lake), catalog, upto)
    taken = any(seen.get(name, ())[:1] != (each.rows - each.new,) for name, each in counted.items())
    if taken or sparse or last_removal(lake) > upto or not _are_new(lake, PICTURE, "image_content", since):
        return False
    lake.execute(f"INSERT INTO making.contents SELECT {SENTENCE} FROM sentence_content WHERE {since} ORDER BY content")
    lake.execute("CREATE OR REPLACE TEMP TABLE new_groups (sentence UINTEGER, before UINTEGER, now UINTEGER)")
    former = "SELECT sentence, duplicates, member FROM making.sentences WHERE duplicates IS NOT NULL"
    if counted["sentence_groups"].new:
        facts_tables.sentence_groups(lake, plan, SENTENCE)
        lake.execute(
            f"INSERT INTO new_groups SELECT sentence, s.duplicates AS before, d.duplicates AS now FROM ({former}) s "
            "FULL JOIN facts_duplicates d USING (sentence) WHERE s.duplicates IS DISTINCT FROM d.duplicates"
        )
        if lake.query(  # a former group is in parts now: matches had one of its members, and lack those of other parts
            "SELECT 1 FROM new_groups g LEFT JOIN facts_duplicates d ON d.sentence = g.before "
            "WHERE g.before IS NOT NULL AND g.now IS DISTINCT FROM d.duplicates LIMIT 1"
        ):
            return False
    else:
        lake.execute(f"CREATE OR REPLACE TEMP TABLE facts_duplicates AS {former}")
    has_moved = counted["superseded"].new > 0
    _list_new(lake, plan, since, has_moved, counted["image_groups"].new > 0)
    if lake.query("SELECT count(*) > count(DISTINCT key) FROM new_numbers")[0][0]:  # two contents have one key
        return False
    # Sentences that were read after the last contents were listed get their contents later than their rows.
    _rewrite(lake, plan, since, has_moved or seen["sentences"][1] > seen["sentence_content"][1])
    lake.execute("; ".join(f"DROP TABLE {table}" for table in _TEMPORARY))
    record(lake, counted)
    return True


def _are_new(lake: Lake, key: str, table: str, since: str) -> bool:
    """Return whether the keys of the new rows differ from one another and from all others, as `fill` makes sure."""
    alike = (
        f"SELECT count(*) > count(DISTINCT key) FROM (SELECT {key} AS key FROM {table}) "
        f"WHERE key IN (SELECT {key} FROM {table} WHERE {since})"
    )
    return not lake.query(alike)[0][0]


def _list_new(lake: Lake, plan: Plan, since: str, has_moved: bool, has_groups: bool) -> None:
    """Create ``new_pictures``, ``new_sentences`` and ``new_matched``: the keys to compute anew. Take out the images.

    ``has_moved``: documents are gone or back. Else the candidates of pictures that were there stay. ``has_groups``:
    there is a newer grouping of the images. Creates ``new_numbers(key, sentence)`` too, of all sentences in new rows.
    """

    def create(name: str, key: str, tables: Iterable[str], *others: str) -> None:
        keys = " UNION ALL ".join([*(f"SELECT {key} AS key FROM {table} WHERE {since}" for table in tables), *others])
        lake.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT DISTINCT key FROM ({keys})")

    images, sentences = ([table.table for table in tables] for tables in facts_tables.score_tables(plan))
    of_new = f"document_id IN (SELECT document_id FROM {{}} WHERE {since})"
    gone = of_new.format("superseded") if has_moved else "false"
    regrouped = (
        f"SELECT {PICTURE} FROM (SELECT i.sha256 FROM making.images i LEFT JOIN ({facts_tables.image_groups(plan)}) g "
        "ON g.sha256 = i.sha256 WHERE i.group_id IS DISTINCT FROM g.group_id)"
    )
    shown = f"SELECT {PICTURE} FROM images WHERE {of_new.format('documents')} OR {gone}"
    clusters = f"SELECT making.picture_of(key) FROM clusters WHERE {since}"
    create("new_pictures", PICTURE, ("images", *images), shown, clusters, *([regrouped] if has_groups else []))
    _take(lake, "images", "picture", facts_tables.PICTURE_NUMBERS, "new_pictures")
    of_groups = "SELECT key FROM making.contents WHERE rowid IN (SELECT sentence FROM new_groups)"
    contents = ("sentences", "sentence_content", *sentences)
    create("new_sentences", SENTENCE, contents, of_groups, f"SELECT {SENTENCE} FROM sentences WHERE {gone}")
    pairs = ("match_candidates", *(table.table for _, table in plan.candidate_columns))
    candidates = (
        "SELECT key FROM making.pictures WHERE rowid IN (SELECT picture FROM (SELECT picture, unnest(sentences) AS s "
        "FROM making.matches) WHERE s IN (SELECT sentence FROM new_groups))"
    )
    shown = f"SELECT key FROM new_pictures{'' if has_moved else ' WHERE key NOT IN (SELECT key FROM images_before)'}"
    create("new_matched", PICTURE, pairs, shown, candidates)
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE new_numbers AS FROM {SENTENCE_NUMBERS} WHERE key IN (SELECT key "
        f"FROM new_sentences UNION ALL SELECT {SENTENCE} FROM match_candidates WHERE {since})"
    )


def _rewrite(lake: Lake, plan: Plan, since: str, recount: bool) -> None:
    """Compute the rows of ``new_pictures``, ``new_sentences`` and ``new_matched`` anew.

    What has a row in the facts has its former scores and candidates unless there are new ones, so that only the files
    of new rows are read. All are read for pictures that the lake knew and that had no row, as their documents were
    gone, and candidates also if groups of sentences changed, or for scores of pairs. ``recount``: count sentences anew.
    """
    known = f"SELECT {PICTURE} FROM image_content WHERE {since} UNION ALL SELECT key FROM images_before"
    is_back = bool(lake.query(f"SELECT 1 FROM new_pictures WHERE key NOT IN ({known}) LIMIT 1"))
    is_anew = is_back or plan.candidate_columns or lake.query("SELECT 1 FROM new_groups LIMIT 1")
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE new_images AS FROM {facts_tables.CURRENT_IMAGES} "
        f"WHERE {PICTURE} IN (SELECT key FROM new_pictures)"
    )
    lake.execute(
        f"INSERT INTO making.pictures SELECT {PICTURE} FROM new_images "
        "EXCEPT SELECT key FROM making.pictures WHERE key IN (SELECT key FROM new_pictures)"
    )
    facts_tables.number_pictures(lake, PICTURE, "new_images")
    facts_tables.write_images(
        lake, plan, "making.picture_of({})".format, "new_images", "new_pictures", "" if is_back else since
    )
    _take(lake, "sentences", "sentence", "new_numbers", "new_sentences")
    facts_tables.write_sentences(lake, plan, SENTENCE, "new_sentences", since, recount)
    _take(lake, "matches", "picture", facts_tables.PICTURE_NUMBERS, "new_matched")
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_pictures AS SELECT key, {NUMBER} AS picture FROM "
        "making.pictures WHERE key IN (SELECT key FROM new_matched) AND rowid IN (SELECT picture FROM making.images)"
    )
    write_matches(lake, plan, PICTURE, SENTENCE, "new_matched", "" if is_anew else since)


def _take(lake: Lake, table: str, number: str, numbers: str, keys: str) -> None:
    """Move the rows of ``keys`` from a table of facts to ``TABLE_before(key, number, before)``, a struct of the row.

    ``numbers`` is SQL of (key, number).
    """
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE {table}_before AS SELECT key, {number}, any_value(t) AS before "
        f"FROM (SELECT {_USED[table]} FROM making.{table}) t "
        f"JOIN (SELECT * FROM {numbers} WHERE key IN (SELECT key FROM {keys})) USING ({number}) GROUP BY ALL"
    )
    lake.execute(f"DELETE FROM making.{table} WHERE {number} IN (SELECT {number} FROM {table}_before)")
