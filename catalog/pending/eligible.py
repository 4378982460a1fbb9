"""Write SQL for the rows that pass a recipe's rules: images, sentences, and their current scores."""

from collections.abc import Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import chosen_captions
from pairmill.catalog.pending.chosen_captions import scored_rows
from pairmill.catalog.pending.superseded import gone_documents, gone_sentences
from pairmill.catalog.recipe.plan import READABLE, Check, Plan, ScoreColumns
from pairmill.catalog.terms.score import Stage

AFTER_ALL = Stage.FUSE + 1  # rules of every stage apply


def image_rows(plan: Plan, stage: int, upto: int | None = None, among: str = "") -> str:
    """Return SQL for each current image occurrence with ``dropped_by`` and ``dropped_value``.

    ``dropped_by`` is '' or the first failed rule, ``dropped_value`` the values that this rule read. Only rules of
    stages before ``stage`` apply. ``upto`` ignores rows of later commits (None: no limit). ``among`` is a table whose
    ``sha256`` restrict the images; '' for all.
    """
    checks = [check for check in plan.image_checks if check.stage < stage]
    rows, columns = _images(plan, checks, upto, among)
    return (
        "SELECT image_id, document_id, sha256, shard, url, alt_text, width, height, n_bytes, position"
        f"{''.join(', ' + name for name in columns)}, {decided(checks)} FROM ({rows})"
    )


def _images(
    plan: Plan, checks: Sequence[Check], upto: int | None, among: str, shards: str = ""
) -> tuple[str, dict[str, str]]:
    """Return SQL for image occurrences with the score columns that ``checks`` read, and these columns by name."""
    joins, columns = _joins(plan, checks, plan.image_tables, "sha256", upto, shards)
    chosen = "".join(f", {source} AS {name}" for name, source in columns.items())
    images = f"SELECT * FROM images{_where('sha256', upto, among)}"
    return (
        f"SELECT i.*{chosen} FROM ({images}) i ANTI JOIN {gone_documents(upto)} g "
        f"ON g.document_id = i.document_id{joins}",
        columns,
    )


def sentence_rows(plan: Plan, stage: int, upto: int | None = None, among: str = "") -> str:
    """Return SQL for each current distinct sentence with ``dropped_by`` and ``dropped_value``, as `image_rows`.

    ``among`` is a table of (content, text, shard) that restricts the sentences; '' for all.
    """
    checks = [check for check in plan.sentence_checks if check.stage < stage]
    return f"SELECT content, text, shard, {decided(checks)} FROM ({_sentences(plan, checks, upto, among)})"


def judged_sentences(plan: Plan, upto: int, among: str) -> str:
    """Return SQL for the sentences of table ``among``, as `sentence_rows`, with all columns that the rules read."""
    checks = plan.sentence_checks
    return f"SELECT *, {decided(checks)} FROM ({_sentences(plan, checks, upto, among)})"


def items_before_rule(plan: Plan, kind: str, check: Check, among: str = "") -> str:
    """Return SQL for the items that pass every rule before ``check``, with the columns that the rules read.

    Items are image occurrences or distinct sentences. ``among`` is a table of image_id and sha256 that already applies
    everything before the rules on captions.
    """
    checks = plan.checks(kind)
    before = [each for each in checks[: checks.index(check)] if not among or each.stage >= Stage.CAPTION]
    if kind == "sentence":
        return f"SELECT * FROM ({_sentences(plan, [*before, check], None, '')}) WHERE {passed(before)}"
    where = f" AND image_id IN (SELECT image_id FROM {among})" if among else ""
    return f"SELECT * FROM ({_images(plan, [*before, check], None, among)[0]}) WHERE {passed(before)}{where}"


def surviving_images(plan: Plan, checks: Sequence[Check], shards: str) -> str:
    """Return SQL for ``sha256`` of the image occurrences that pass ``checks``, among images scored in ``shards``.

    ``shards`` is a table. Plain conditions, as in `surviving_sentences`. Restricting the images as well takes a third
    longer, because they are joined twice.
    """
    rows, _ = _images(plan, checks, None, "", shards)
    return f"SELECT sha256 FROM ({rows}) WHERE {passed(checks)}"


def surviving_sentences(plan: Plan, checks: Sequence[Check], among: str, shards: str = "") -> str:
    """Return SQL for ``content`` of the sentences in table ``among`` that are in current documents and pass ``checks``.

    Scores are read only in ``shards`` (a table) if given. Equals `sentence_rows` without ``dropped_by``, but as plain
    conditions, which DuckDB pushes into the scans: at 36M sentences 11 CPU s, against 27 for a CASE over outer joins.
    """
    return f"SELECT content FROM ({_sentences(plan, checks, None, among, shards)}) WHERE {passed(checks)}"


def passed(checks: Sequence[Check]) -> str:
    """Return the SQL condition that a row passes all of ``checks``; 'true' without checks."""
    return " AND ".join(f"({check.passes})" for check in checks) or "true"


def _sentences(plan: Plan, checks: Sequence[Check], upto: int | None, among: str, shards: str = "") -> str:
    """Return SQL for current sentences with the columns that ``checks`` read; arguments as in `surviving_sentences`."""
    joins, columns = _joins(plan, checks, plan.sentence_tables, "content", upto, shards)
    read = {column for check in checks for column in check.columns}
    where = _where("content", upto, among)
    chosen = "".join(f", {source} AS {name}" for name, source in columns.items())
    if "repeats" in read:
        chosen += ", r.repeats"
        joins += (
            f" LEFT JOIN (SELECT content, count(*) AS repeats FROM (SELECT * FROM sentences{where}) s ANTI JOIN "
            f"{gone_documents(upto)} g ON g.document_id = s.document_id GROUP BY content) r ON r.content = i.content"
        )
    known = f"(SELECT * FROM sentence_content{where})" if not among or "text" in read else among
    return f"SELECT i.*{chosen} FROM {known} i ANTI JOIN {gone_sentences(upto)} z ON z.content = i.content{joins}"


def _joins(
    plan: Plan, checks: Sequence[Check], tables: Sequence[ScoreColumns], key: str, upto: int | None, shards: str
) -> tuple[str, dict[str, str]]:
    """Return SQL joins of the score tables that ``checks`` read, and name -> expression of their columns."""
    wanted = {name for check in checks for name in check.tables}
    sql, columns = "", {}
    for index, table in enumerate(t for t in tables[1:] if t.table in wanted):
        alias = f"t{index}"
        scores = current_scores(plan, table.table, key, upto)
        if shards:
            scores = f"(SELECT * FROM {scores} WHERE shard IN (SELECT shard FROM {shards}))"
        sql += f" LEFT JOIN {scores} {alias} ON {alias}.{key} = i.{key}"
        columns |= {name: f"{alias}.{source}" for name, source in table.source.items()}
    return sql, columns


def current_scores(plan: Plan, table: str, key: str, upto: int | None = None, only: str = "") -> str:
    """Return SQL for a score table's valid rows, one per key: by the plan's scorer, and the newest of their key.

    Captions and their similarities are those of the captioner that the recipe selects for the image. ``only`` is a
    condition on all rows, '' for none.
    """
    if plan.recipe.captioned_by and table in chosen_captions.chosen_tables(plan):
        return chosen_captions.chosen_rows(plan, table, upto, only)
    return scored_rows(plan, table, key, upto, only)


def _where(key: str, upto: int | None, among: str) -> str:
    """Return a WHERE clause for commits up to ``upto`` and keys in ``among``; '' for none."""
    conditions = [] if upto is None else [f"commit <= {upto}"]
    conditions += [f"{key} IN (SELECT {key} FROM {among})"] if among else []
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def decided(checks: Sequence[Check]) -> str:
    """Return SQL columns: ``dropped_by``, '' or the first failed rule; ``dropped_value``, the values that it read."""
    if not checks:
        return "'' AS dropped_by, '' AS dropped_value"
    names = " ".join(f"WHEN ({check.passes}) IS NOT TRUE THEN '{check.name}'" for check in checks)
    values = " ".join(f"WHEN ({check.passes}) IS NOT TRUE THEN {value_of(check)}" for check in checks)
    return f"CASE {names} ELSE '' END AS dropped_by, CASE {values} ELSE '' END AS dropped_value"


def failed(checks: Sequence[Check]) -> str:
    """Return an SQL bit mask (UBIGINT): bit i is set if check i is false, not if it is NULL, as for a missing score.

    `readable` has no bit, because images that an earlier rule dropped lack its score; checks from the 65th on have none
    either.
    """
    bits = [
        f"CASE WHEN ({check.passes}) IS FALSE THEN {1 << bit} ELSE 0 END"
        for bit, check in enumerate(checks[:64])
        if check.name != READABLE.name
    ]
    return f"CAST({' + '.join(bits) or '0'} AS UBIGINT)"


def value_of(check: Check) -> str:
    """Return SQL text with the names and values of the columns that a rule reads: ``width=12, height=9``."""
    parts = [f"'{column}=' || coalesce(left(CAST({column} AS VARCHAR), 80), 'NULL')" for column in check.columns]
    return " || ', ' || ".join(parts) or "''"


def candidates(plan: Plan) -> str:
    """Return SQL for the candidates of all images: of all cluster ranges and runs, so that a sentence may come twice.

    To rank them all takes 140 CPU s at 10M images, of which only the best, or those of a few images, are asked for.
    """
    return f"(SELECT sha256, content, similarity FROM match_candidates WHERE scorer = '{plan.scorer('matches')}')"


def best_candidates(plan: Plan) -> int:
    """Return the number of candidates per image that are used: 4 x top_k."""
    return 4 * plan.recipe.association.top_k


def best_similarities(lake: Lake, plan: Plan, keys: list[str], k: int) -> list[tuple[str, int, float]]:
    """Read (sha256, rank from 1, similarity) of the ``k`` best stored candidates of the given images."""
    best = "max(similarity)"
    return lake.query(
        f"SELECT sha256, row_number() OVER (PARTITION BY sha256 ORDER BY {best} DESC, content) AS rank, {best} "
        f"FROM {candidates(plan)} WHERE sha256 IN (SELECT unnest(?)) GROUP BY sha256, content QUALIFY rank <= {k}",
        (keys,),
    )
