"""Build the tables of facts, which identify images and sentences by integers instead of 32 hex digits.

- ``images(image_id, sha256, shard, picture, repeated, occurrence, group_id, cluster, draw, ...)``: the current
  occurrences, with the columns that rules read. ``draw`` is 64 bits of sha256(sha256 || seed), by which the cap ranks
  the images of a cluster: it depends on content alone, so a renamed folder yields the same draw. ``picture`` is a
  number per sha256; ``repeated`` says that several occurrences share it. For these, ``occurrence`` is 64 bits of a hash
  of the alt text and position, followed by 64 bits of the released address; NULL for others.
- ``pictures(key)``: a picture's number is its ``rowid``; ``key`` is ``facts.picture_of(sha256)``.
- ``contents(key)``: a sentence's number is its ``rowid``; ``key`` is ``facts.key_of(content)``, by which its text is
  found in the lake. Numbers are in the order of ``content`` until facts are extended: no tie is decided by them.
- ``sentences(sentence, gone, duplicates, member, repeats, ...)``: the columns that rules on sentences read. ``gone``:
  no current document contains it. ``duplicates``: the least number of its group, and ``member`` its content, by which
  ties break; NULL if in no group.
- ``numbering(id)``: one row, an id of these numbers; facts that extend these have the same.
- ``matches(picture, sentences, similarities, ...)``: one row per picture with its best 4 x top_k sentences, best first,
  each sentence once, and of a group of duplicates the most similar. A list for each score of pairs that the recipe
  reads (`Plan.candidate_columns`) follows.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from pairmill.catalog.cut.facts_matches import NUMBER, SENTENCE_NUMBERS, SORTED_AT_ONCE, all_different, write_matches
from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.pending.superseded import gone_documents, gone_sentences
from pairmill.catalog.recipe.plan import Check, Plan, ScoreColumns
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import named_in

# Inputs of the facts for every plan, besides scores: tables, and scorers by the table that they fill.
TABLES = ("documents", "images", "image_groups", "clusters", "match_candidates", "sentences", "sentence_content",
          "sentence_groups", "superseded")  # fmt: skip
SCORERS = ("image_groups", "balance_clusters", "matches", "sentence_groups")
# Texts of any length, which few rules read: included only for recipes that read them.
FREE_TEXTS = ("url", "alt_text", "text")
PICTURE_NUMBERS = f"(SELECT key, {NUMBER} AS picture FROM making.pictures)"
_BITS = "CAST('0x' || left(sha256({}), 16) AS UBIGINT)"
# 64-bit hash in place of an id. Among 800M ids, two collide once in 58 lakes: then the next function is used.
KEYS = ("hash({0})", "hash('1' || {0})", "hash('2' || {0})", "{0}")
CURRENT_IMAGES = f"(SELECT * FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id)"
KeyOf = Callable[[str], str]  # maps SQL of an id to SQL of its key
Measured = tuple[str, Iterable[str], str]  # a table's name, columns of it, SQL of its rows with ``key`` and these
LAYOUT = 11  # incremented when the columns change: no cut reads facts of another layout


def image_checks(plan: Plan) -> list[Check]:
    """Return the rules on images that the facts' columns decide; rules on generated texts apply later."""
    return [check for check in plan.image_checks if check.stage < Stage.CAPTION]


def score_tables(plan: Plan) -> tuple[list[ScoreColumns], list[ScoreColumns]]:
    """Return (scores of images, scores of sentences) that early rules read: the facts include their columns."""
    images, sentences = plan.image_tables[1:], plan.sentence_tables[1:]
    return [table for table in images if table.stage < Stage.CAPTION], list(sentences)


def tables_read(lake: Lake) -> list[str]:
    """Return every table that `fill` reads for any plan, whose new rows invalidate the facts of every recipe alike."""
    known = (*declared(), *named_in(lake.tables))
    early = [score.table for score in known if score.rule_columns and score.stage < Stage.CAPTION]
    return [table for table in (*TABLES, *early) if table in lake.tables]


def scorers_read(plan: Plan) -> list[tuple[str, str]]:
    """Return (table filled, scorer's digest) for every scorer whose rows `fill` reads."""
    filled = [*SCORERS, *(table.table for kind in score_tables(plan) for table in kind)]
    pairs = [(f"{name} of {table.table}", plan.scorer(table.table)) for name, table in plan.candidate_columns]
    return [*((name, plan.scorer(name)) for name in filled), *pairs]


def texts_read(checks: Sequence[Check]) -> list[str]:
    """Return the columns among FREE_TEXTS that the rules read."""
    return sorted({column for check in checks for column in check.columns} & set(FREE_TEXTS))


def fill(lake: Lake, plan: Plan) -> None:
    """Write all tables of facts into the attached database ``making``, from the tables of the current catalog."""
    picture_key = _choose_key(lake, "image_content", "sha256")
    key = picture_key("sha256")
    lake.execute(
        f"CREATE TABLE making.numbering AS SELECT uuid() AS id; CREATE MACRO making.picture_of(sha256) AS {key}; "
        f"CREATE TABLE making.pictures AS SELECT DISTINCT {key} AS key FROM {CURRENT_IMAGES}"
    )
    number_pictures(lake, key, CURRENT_IMAGES)
    write_images(lake, plan, picture_key, CURRENT_IMAGES)
    key = _choose_key(lake, "sentence_content", "content")("content")
    lake.execute(
        f"CREATE MACRO making.key_of(content) AS {key}; "
        f"CREATE TABLE making.contents AS SELECT {key} AS key FROM sentence_content ORDER BY content"
    )
    sentence_groups(lake, plan, key)
    write_sentences(lake, plan, key)
    write_matches(lake, plan, picture_key("sha256"), key)
    lake.execute("DROP TABLE facts_pictures; DROP TABLE facts_duplicates")


def number_pictures(lake: Lake, key: str, counted: str) -> None:
    """Create ``facts_pictures(key, picture, repeated)`` of the occurrences ``counted`` (SQL)."""
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_pictures AS SELECT key, picture, repeated FROM (SELECT {key} AS key, "
        f"count(*) > 1 AS repeated FROM {counted} GROUP BY key) JOIN {PICTURE_NUMBERS} USING (key)"
    )


def write_images(lake: Lake, plan: Plan, key_of: KeyOf, counted: str, among: str = "", since: str = "") -> None:
    """Write ``making.images`` of the occurrences ``counted`` (SQL); with a table ``among`` of their keys, add them.

    With a condition ``since``, only scores that pass it are read; the former are in ``images_before(picture, before)``.
    """
    of, before = key_of("sha256"), "images_before" if since else ""
    only = since or _only(of, among)
    clustered = f"scorer = '{plan.scorer('balance_clusters')}'{f' AND {since}' if since else ''}"
    tables = [("cluster_of", ["cluster"], f"SELECT {key_of('key')} AS key, cluster FROM clusters WHERE {clustered}")]
    tables += [_scores(plan, table, of, "sha256", only) for table in score_tables(plan)[0]]
    (cluster, *measured), joins = _joined(tables, before)
    names = ["image_id", "sha256", "shard", "picture", "repeated", "occurrence", "group_id", cluster, "draw"]
    names += [*_columns_to_include(plan.image_tables[0], plan.image_checks), *measured]
    joins = f"{f' LEFT JOIN {before} USING (picture)' if before else ''}{joins}"
    draw = _BITS.format(f"sha256 || '{plan.recipe.seed}'") + " AS draw"
    there, at = (_BITS.format(said) for said in ("concat_ws(' ', position, alt_text)", "coalesce(raw_image_url, '')"))
    occurrence = f"CASE WHEN repeated THEN {there}::UHUGEINT * 18446744073709551616 + {at} END AS occurrence"
    names = [occurrence if name == "occurrence" else name for name in names]
    lake.execute(
        f"{_into('images', among)} SELECT {', '.join(names)} FROM (SELECT {of} AS key, {draw}, * FROM {counted}) "
        f"JOIN facts_pictures USING (key){joins} "
        f"LEFT JOIN ({_addresses_of_repeated(of, counted)}) USING (image_id) "
        f"LEFT JOIN (SELECT {of} AS key, group_id FROM ({image_groups(plan)})) USING (key)"
    )


def _addresses_of_repeated(key: str, counted: str) -> str:
    """Return SQL for the released address of each occurrence of repeated images: the last tie-breaker between them."""
    repeated = f"SELECT * FROM {counted} WHERE {key} IN (SELECT key FROM facts_pictures WHERE repeated)"
    shown = f"SELECT image_id, document_id, position, url FROM ({repeated})"
    return (
        "SELECT image_id, any_value(raw_image_url) AS raw_image_url "
        f"FROM {with_released_address(shown)} GROUP BY image_id"
    )


def _into(table: str, among: str) -> str:
    """Return the beginning of a statement that creates a table of facts, or with ``among`` adds to it."""
    return f"INSERT INTO making.{table}" if among else f"CREATE TABLE making.{table} AS"


def _only(key: str, among: str) -> str:
    """Return the SQL condition that ``key`` is in the table ``among``, '' without one."""
    return among and f"{key} IN (SELECT key FROM {among})"


def _scores(plan: Plan, table: ScoreColumns, of: str, key: str, only: str) -> Measured:
    """Return the name of a score table, its columns as rules name them, and SQL for its rows that meet ``only``."""
    measured = "".join(f", {source} AS {name}" for name, source in table.source.items())
    rows = current_scores(plan, table.table, key, only=only)
    return table.table, table.source, f"SELECT {of} AS key{measured} FROM {rows}"


def _joined(tables: Iterable[Measured], before: str) -> tuple[list[str], str]:
    """Return the columns of ``tables``, and SQL that joins their rows by ``key``.

    With a table ``before``, whose column of that name has a struct of former values, these stay without a row.
    """
    columns, joins = [], ""
    for table, names, rows in tables:
        joins += f" LEFT JOIN ({rows}) {table} USING (key)"
        former = f"if({table}.key IS NULL, before.{{0}}, {table}.{{0}}) AS {{0}}" if before else f"{table}.{{0}}"
        columns += map(former.format, names)
    return columns, joins


def image_groups(plan: Plan) -> str:
    """Return SQL for the newest, complete duplicate groups, each with its smallest member, whose id is the group's."""
    of_scorer = f"FROM image_groups WHERE scorer = '{plan.scorer('image_groups')}'"
    newest = f"SELECT sha256, group_id {of_scorer} AND commit = (SELECT max(commit) {of_scorer})"
    return (
        f"WITH newest AS ({newest}) FROM newest UNION ALL SELECT DISTINCT group_id, group_id FROM newest "
        "WHERE group_id NOT IN (SELECT sha256 FROM newest)"
    )


def write_sentences(lake: Lake, plan: Plan, of: str, among: str = "", since: str = "", recount: bool = True) -> None:
    """Write ``making.sentences``; ``of`` is SQL of a sentence's key. With a table ``among`` of keys, add these.

    With a condition ``since``, only rows that pass it are read, the former values are in ``sentences_before(sentence,
    before)``, and the numbers of all these sentences in ``new_numbers(key, sentence)``. ``recount`` must be true if a
    document is gone or back: else new occurrences are added to the former number.
    """
    before, numbers = ("sentences_before", "new_numbers") if since else ("", SENTENCE_NUMBERS)
    contents, only = plan.sentence_tables[0], since or _only(of, among)
    own_only, count_only = (f" WHERE {each}" if each else "" for each in (only, _only(of, among) if recount else since))
    own = [name for name in _columns_to_include(contents, plan.sentence_checks) if name != "repeats"]
    tables = [("own", own, f"SELECT {of} AS key, {', '.join(own)} FROM sentence_content{own_only}")] if own else []
    tables += [_scores(plan, table, of, "content", only) for table in score_tables(plan)[1]]
    measured, joins = _joined(tables, before)
    counted = (
        f"SELECT {of} AS key, count(*) AS n FROM sentences s ANTI JOIN {gone_documents()} g "
        f"ON g.document_id = s.document_id{count_only} GROUP BY key"
    )
    gone, repeats = f"key IN (SELECT {of} FROM {gone_sentences()})", "n"
    if not recount:
        gone, repeats = "coalesce(before.gone AND n IS NULL, false)", "coalesce(n + before.repeats, n, before.repeats)"
    if before:
        joins += f" LEFT JOIN {before} USING (sentence)"
    columns = ", ".join([f"{gone} AS gone", "duplicates", "member", f"{repeats} AS repeats", *measured])
    lake.execute(
        f"{_into('sentences', among)} SELECT sentence, {columns} FROM (FROM {numbers} "
        f"WHERE {_only('key', among) or 'true'}){joins} LEFT JOIN ({counted}) USING (key) "
        "LEFT JOIN facts_duplicates USING (sentence)"
    )


def sentence_groups(lake: Lake, plan: Plan, of: str) -> None:
    """Create ``facts_duplicates(sentence, duplicates, member)``: the groups of duplicate sentences.

    Each grouping is a complete snapshot, so only the newest is read. ``of`` is SQL that maps content to its key.
    """
    scorer = plan.scorer("sentence_groups")
    lake.execute("CREATE OR REPLACE TEMP TABLE facts_duplicates (sentence UINTEGER, duplicates UINTEGER, "
                 "member VARCHAR)")  # fmt: skip
    if not scorer:
        return
    of_scorer = f"FROM sentence_groups WHERE scorer = '{scorer}'"
    lake.execute(
        "INSERT INTO facts_duplicates SELECT sentence, min(sentence) OVER (PARTITION BY group_id), content "
        f"FROM (SELECT {of} AS key, content, group_id {of_scorer} AND commit = (SELECT max(commit) {of_scorer})) "
        f"JOIN {SENTENCE_NUMBERS} USING (key)"
    )


def _columns_to_include(table: ScoreColumns, checks: Sequence[Check]) -> list[str]:
    """Return the table's columns to include: all but free texts that no rule reads."""
    return [name for name in table.columns if name not in FREE_TEXTS or name in texts_read(checks)]


def _choose_key(lake: Lake, table: str, column: str) -> KeyOf:
    """Return the first function of KEYS with distinct values for all ids ``column``: 64 bits join in half the time."""
    *hashes, whole_id = (key.format for key in KEYS)
    for key_of in hashes:
        lake.execute(f"CREATE OR REPLACE TEMP TABLE facts_keys AS SELECT {key_of(column)} AS key FROM {table}")
        all_differ = all(all_different(keys) for keys in _ranges(lake))
        lake.execute("DROP TABLE facts_keys")
        if all_differ:
            return key_of
    return whole_id


def _ranges(lake: Lake) -> Iterator[np.ndarray]:
    """Yield the keys of ``facts_keys`` in ascending ranges of about SORTED_AT_ONCE."""
    n, low, high = lake.query("SELECT count(*), min(key), max(key) FROM facts_keys")[0]
    parts = n // SORTED_AT_ONCE + 1
    bounds = {low + (high + 1 - low) * part // parts for part in range(parts + 1)} if n else ()
    for first, end in itertools.pairwise(sorted(bounds)):
        of_range = f"SELECT key FROM facts_keys WHERE key BETWEEN {first}::UBIGINT AND {end - 1}::UBIGINT"
        yield lake.table(of_range)["key"].to_numpy()
