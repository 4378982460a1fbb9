"""What is still to do: what the recipe makes eligible so far, minus what already has this score from this scorer.

That one anti-join is resume, incremental ingest and 'the captioner changed'. Shards whose scorer has as many rows as
the shard has contents are left out before the join on keys, so a finished lake answers from ``partitions`` alone.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from catalog.lake import Lake
from catalog.plan import IMAGE_TABLES, SENTENCE_TABLES, Check, Plan, ScoreColumns, Stage
from catalog.superseded import gone, silenced


@dataclass(frozen=True)
class WorkItem:
    """One worker's portion: the rows ``keys`` of ``shard``, to be read from ``paths``.

    ``tables`` names the scores that these rows lack; ``inputs`` carries small values a row (texts), aligned with
    ``keys``; among them ``before``, the commit of the row that is to be replaced. Never a path alone: deleted rows
    still stand in the file.
    """

    shard: str
    keys: tuple[str, ...]
    paths: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    inputs: dict[str, Any] = field(default_factory=dict, compare=False)

    @property
    def digest(self) -> str:
        """Identity of what this item asks for (not of its answer): 32 hex digits.

        Where two recipes replace each other's rows in turn, the same texts are asked for again: ``before`` tells these
        items apart, or the third one's answer would be passed over as known.
        """
        replaced = (*self.inputs.get("input_digests", ()), *map(str, self.inputs.get("before", ())))
        text = "\x1f".join((self.shard, *self.tables, *self.keys, *replaced))
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def only(self, keys: Sequence[str]) -> "WorkItem":
        """The item with these of its keys, and their inputs."""
        place = {key: n for n, key in enumerate(self.keys)}
        inputs = {name: [values[place[key]] for key in keys] for name, values in self.inputs.items()}
        return WorkItem(self.shard, tuple(keys), self.paths, self.tables, inputs)


def image_rows(plan: Plan, stage: Stage, upto: int | None = None, among: str = "") -> str:
    """SQL: every image occurrence that counts, with ``dropped_by`` ('' or its first failed rule) and ``dropped_value``.

    Rules of stages before ``stage`` bite; ``upto`` leaves out rows of later commits; ``among`` names a table whose
    ``sha256`` are the only ones asked for.
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
    joins, columns = _joins(plan, checks, IMAGE_TABLES, "sha256", upto, shards)
    chosen = "".join(f", {source} AS {name}" for name, source in columns.items())
    images = f"SELECT * FROM images{_where('sha256', upto, among)}"
    return (
        f"SELECT i.*{chosen} FROM ({images}) i ANTI JOIN {gone(upto)} g ON g.document_id = i.document_id{joins}",
        columns,
    )


def sentence_rows(plan: Plan, stage: Stage, upto: int | None = None) -> str:
    """SQL: every distinct sentence that counts, with ``dropped_by`` and ``dropped_value``, as :func:`image_rows`."""
    checks = [check for check in plan.sentence_checks if check.stage < stage]
    return f"SELECT content, text, shard, {decided(checks)} FROM ({_sentences(plan, checks, upto, '')})"


def surviving_images(plan: Plan, checks: Sequence[Check], shards: str) -> str:
    """SQL: the ``sha256`` of occurrences that pass ``checks`` and count, of pictures scored in ``shards`` (a table).

    As :func:`surviving_sentences`. Asked for among some pictures, it takes a third longer: these are joined twice.
    """
    rows, _ = _images(plan, checks, None, "", shards)
    return f"SELECT sha256 FROM ({rows}) WHERE {passed(checks)}"


def surviving_sentences(plan: Plan, checks: Sequence[Check], upto: int | None, among: str, shards: str = "") -> str:
    """SQL: the ``content`` of table ``among`` (of known sentences) that pass ``checks`` and still count; scores are
    looked for in ``shards`` (a table) alone when it is given.

    Equal to those of :func:`sentence_rows` with no ``dropped_by``, but as plain conditions, which DuckDB takes into the
    scans: at 36M sentences 11 CPU s where the CASE over outer joins takes 27.
    """
    return f"SELECT content FROM ({_sentences(plan, checks, upto, among, shards)}) WHERE {passed(checks)}"


def passed(checks: Sequence[Check]) -> str:
    """SQL: whether a row passes them all."""
    return " AND ".join(f"({check.keep})" for check in checks) or "true"


def _sentences(plan: Plan, checks: Sequence[Check], upto: int | None, among: str, shards: str = "") -> str:
    joins, columns = _joins(plan, checks, SENTENCE_TABLES, "content", upto, shards)
    read = {column for check in checks for column in check.columns}
    where = _where("content", upto, among)
    chosen = "".join(f", {source} AS {name}" for name, source in columns.items())
    if "repeats" in read:
        chosen += ", r.repeats"
        joins += (
            f" LEFT JOIN (SELECT content, count(*) AS repeats FROM (SELECT * FROM sentences{where}) s ANTI JOIN "
            f"{gone(upto)} g ON g.document_id = s.document_id GROUP BY content) r ON r.content = i.content"
        )
    known = f"(SELECT * FROM sentence_content{where})" if not among or "text" in read else among
    return f"SELECT i.*{chosen} FROM {known} i ANTI JOIN {silenced(upto)} z ON z.content = i.content{joins}"


def _joins(
    plan: Plan,
    checks: Sequence[Check],
    tables: Sequence[ScoreColumns],
    key: str,
    upto: int | None,
    shards: str,
) -> tuple[str, dict[str, str]]:
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


def current_scores(plan: Plan, table: str, key: str, upto: int | None = None) -> str:
    """SQL: the one valid row a key of a score table: this plan's scorer, the newest where inputs changed since."""
    where = f"{_where(key, upto, '') or ' WHERE true'} AND scorer = '{plan.scorer(table)}'"
    if table not in BY_INPUT:
        return f"(SELECT * FROM {table}{where})"
    # A key has a second row only in a shard that was worked on twice. Ranking all took as long as the whole cut.
    once = (
        f"(SELECT shard FROM partitions WHERE \"table\" = '{table}' AND scorer = '{plan.scorer(table)}' AND rows > 0 "
        "GROUP BY shard HAVING count(*) = 1)"
    )
    return (
        f"(SELECT * FROM {table}{where} AND shard IN {once} UNION ALL SELECT * FROM {table}{where} AND shard NOT IN "
        f"{once} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit DESC) = 1)"
    )


BY_INPUT = ("image_similarity", "caption_similarity", "synthetic")


def _where(key: str, upto: int | None, among: str) -> str:
    said = [] if upto is None else [f"commit <= {upto}"]
    said += [f"{key} IN (SELECT {key} FROM {among})"] if among else []
    return f" WHERE {' AND '.join(said)}" if said else ""


def decided(checks: Sequence[Check]) -> str:
    """SQL: ``dropped_by`` ('' or the first rule that a row fails) and ``dropped_value``, with what that rule read."""
    if not checks:
        return "'' AS dropped_by, '' AS dropped_value"
    names = " ".join(f"WHEN ({check.keep}) IS NOT TRUE THEN '{check.name}'" for check in checks)
    values = " ".join(f"WHEN ({check.keep}) IS NOT TRUE THEN {_value(check)}" for check in checks)
    return f"CASE {names} ELSE '' END AS dropped_by, CASE {values} ELSE '' END AS dropped_value"


def _value(check: Check) -> str:
    parts = [f"'{column}=' || coalesce(left(CAST({column} AS VARCHAR), 80), 'NULL')" for column in check.columns]
    return " || ', ' || ".join(parts) or "''"


# Keys of one round, which are held as Python texts: some 600 MB. 2.1B sentences are 420 rounds.
ROUND = 5_000_000


def rounds(shards: Iterable[tuple[str, int]]) -> Iterator[list[str]]:
    """Cut (shard, rows) into runs of shards of at most ROUND rows (a larger one alone); one empty run when none is."""
    run: list[str] = []
    held = 0
    for shard, n in shards:
        if run and held + n > ROUND:
            yield run
            run, held = [], 0
        run.append(shard)
        held += n
    yield run


def by_rounds(lake: Lake, sql: str) -> Iterator[list[tuple]]:
    """The rows of ``sql`` (``shard``, the list ``keys`` and more, a row a shard), in rounds by shard. DuckDB keeps what
    is not of this round, and spills it if need be."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE pending_rows AS {sql}")
    for run in rounds(lake.query("SELECT shard, len(keys) FROM pending_rows ORDER BY shard")):
        mine = "SELECT * FROM pending_rows WHERE shard IN (SELECT unnest(?::VARCHAR[])) ORDER BY shard"
        yield lake.query(mine, (run,)) if run else []


def pending_images(lake: Lake, plan: Plan, tables: Sequence[str], stage: Stage) -> Iterator[list[WorkItem]]:
    """Distinct pictures that pass the rules so far and lack a row in any of ``tables``, by home shard.

    In rounds, so that a lake of any size is worked through in bounded memory; there is at least one, maybe empty.
    """
    checks = [check for check in plan.image_checks if check.stage < stage]
    rows = surviving_images(plan, checks, "pending_shards")
    return _pending(lake, plan, tables, "image_content", "sha256", rows, "payloads")


def pending_sentences(lake: Lake, plan: Plan, tables: Sequence[str], stage: Stage) -> Iterator[list[WorkItem]]:
    """Distinct sentences that pass the rules so far and lack a row in any of ``tables``, as :func:`pending_images`."""
    checks = [check for check in plan.sentence_checks if check.stage < stage]
    rows = surviving_sentences(plan, checks, None, "pending_open", "pending_shards")
    return _pending(lake, plan, tables, "sentence_content", "content", rows, "sentences")


def _pending(
    lake: Lake, plan: Plan, tables: Sequence[str], content: str, key: str, rows: str, payload: str
) -> Iterator[list[WorkItem]]:
    """``rows`` is SQL for the eligible keys, at least those among ``pending_open``: the contents of unfinished shards,
    ``pending_shards``."""
    finished = " INTERSECT ".join(_finished_shards(plan, table, content) for table in tables)
    shards = f"SELECT shard, count(*) FROM {content} WHERE shard NOT IN ({finished}) GROUP BY shard ORDER BY shard"
    for run in rounds(lake.query(shards)):
        yield _pending_in(lake, plan, tables, content, key, rows, payload, run) if run else []


def _pending_in(
    lake: Lake, plan: Plan, tables: Sequence[str], content: str, key: str, rows: str, payload: str, shards: list[str]
) -> list[WorkItem]:
    lake.execute("CREATE OR REPLACE TEMP TABLE pending_shards AS SELECT unnest(?::VARCHAR[]) AS shard", (shards,))
    of_shard = "shard IN (SELECT shard FROM pending_shards)"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE pending_open AS SELECT {key}, shard FROM {content} WHERE {of_shard}")
    # A score that no unfinished shard has any of is not looked for: a fifth of the time at 10M pictures.
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
    # A shard's keys, which hold no blanks, come as one text: 1.9M of them are read in 0.04 s, as lists in 1.5 s.
    found = lake.query(
        f"SELECT shard, {groups}, string_agg({key}, ' ' ORDER BY {key}) FROM ("
        f"SELECT c.shard, c.{key}, {flags} FROM pending_open c SEMI JOIN ({rows}) e ON e.{key} = c.{key}{joins} "
        f"WHERE {' OR '.join(lacking)}) GROUP BY ALL ORDER BY shard, {groups}"
    )
    lake.execute("DROP TABLE pending_open; DROP TABLE pending_shards")
    paths = payload_paths(lake, payload, {row[0] for row in found})
    return [
        WorkItem(
            shard, tuple(keys.split(" ")), paths[shard], tuple(t for t, on in zip(tables, lacks, strict=True) if on)
        )
        for shard, *lacks, keys in found
    ]


def _finished_shards(plan: Plan, table: str, content: str) -> str:
    return (
        f"SELECT p.shard FROM (SELECT shard, sum(rows) AS done FROM partitions WHERE \"table\" = '{table}' "
        f"AND scorer = '{plan.scorer(table)}' GROUP BY shard) p JOIN (SELECT shard, count(*) AS n FROM {content} "
        "GROUP BY shard) c ON c.shard = p.shard WHERE p.done >= c.n"
    )


def payload_paths(lake: Lake, table: str, shards: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The Parquet files of ``table`` by shard, as absolute paths that a worker can open."""
    wanted = sorted(set(shards))
    if not wanted:
        return {}
    found = lake.query(
        """SELECT shard, list(path ORDER BY path) FROM partitions
        WHERE "table" = ? AND path <> '' AND shard IN (SELECT unnest(?)) GROUP BY shard""",
        (table, wanted),
    )
    return {shard: tuple(lake.data_path + path for path in paths) for shard, paths in found}
