"""Count quarantined items by reason, and reopen them for another attempt."""

from collections.abc import Callable
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.terms.reasons import REASONS
from pairmill.catalog.terms.score import Score


@dataclass(frozen=True)
class FaultCount:
    """Number of quarantined ``items`` with one reason, stage and source, and the ``detail`` of one ``example``."""

    reason: str
    stage: str
    source: str
    items: int
    example: str
    detail: str


@dataclass(frozen=True)
class Units:
    """Units of ``source`` to read again; ``since`` is the commit of their newest quarantine row."""

    source: str
    uris: frozenset[str]
    since: int


def fault_counts(lake: Lake) -> list[FaultCount]:
    """Count quarantined items by reason, stage and source, most frequent first.

    An image's source is one of the sources that show it.
    """
    sources = """SELECT i.sha256, min(d.source) AS source FROM images i JOIN documents d USING (document_id)
        SEMI JOIN quarantine q ON q.item = i.sha256 GROUP BY ALL"""
    rows = lake.query(f"""SELECT reason, stage, coalesce(nullif(q.source, ''), s.source, '') AS source, count(DISTINCT
        item) AS n, min(item), arg_min(detail, item) FROM quarantine q LEFT JOIN ({sources}) s ON s.sha256 = q.item
        GROUP BY ALL ORDER BY n DESC, reason, stage, source""")
    return [FaultCount(*row) for row in rows]


def count(lake: Lake, reason: str) -> int:
    """Count the items that are quarantined for ``reason``."""
    return lake.query("SELECT count(DISTINCT item) FROM quarantine WHERE reason = ?", (reason,))[0][0]


def quarantined_share(lake: Lake, run_id: str) -> float:
    """Return quarantined / (images + quarantined), 0 to 1, of the items that a run read; 0 if it read nothing."""
    mine = 'SELECT "commit" FROM commits WHERE run_id = ?'
    faults = "SELECT count(DISTINCT item) FROM quarantine WHERE run_id = ?"
    found = lake.query(f'SELECT count(*), ({faults}) FROM images WHERE "commit" IN ({mine})', (run_id, run_id))
    images, bad = found[0]
    return bad / (images + bad) if bad else 0.0


def check_reason(reason: str) -> None:
    """Raise PairmillError if ``reason`` is not a quarantine reason."""
    if reason not in REASONS:
        remedy = did_you_mean(reason, REASONS) or f"there are {', '.join(REASONS)}."
        raise PairmillError(f"'{reason}' is not a quarantine reason; {remedy}")


def refused_by_lower_limits(lake: Lake, max_pixels: int, max_bytes: int) -> dict[str, int]:
    """Count, by reason, images that were refused by lower limits than ``max_pixels`` and ``max_bytes``.

    The limit of then is read from the quarantine row's ``detail``.
    """
    most = "try_cast(regexp_extract(detail, 'at most (\\d+) are (taken|decoded)', 1) AS BIGINT)"
    sql = f"""SELECT reason, count(DISTINCT item) FROM quarantine WHERE reason IN ('bomb', 'too_large')
        AND {most} < CASE reason WHEN 'bomb' THEN ? ELSE ? END GROUP BY reason ORDER BY reason"""
    return dict(lake.query(sql, (max_pixels, max_bytes)))


def units(lake: Lake, reason: str) -> list[Units]:
    """Return, by source, the units in which ingest quarantined an item for ``reason``."""
    sql = """SELECT coalesce(nullif(q.source, ''), i.source) AS source, list(DISTINCT q.payload_ref), max(q.commit)
        FROM quarantine q LEFT JOIN (SELECT uri, min(source) AS source FROM inputs GROUP BY uri) i
        ON i.uri = q.payload_ref WHERE stage = 'ingest' AND reason = ? GROUP BY 1 ORDER BY 1"""
    rows = lake.query(sql, (reason,))
    return [Units(source, frozenset(uris), commit) for source, uris, commit in rows if source]


def reopen(lake: Lake, reason: str, begin: Callable[[], int]) -> int:
    """Make the items pending again that stages after ingest quarantined for ``reason``; return their number.

    Their score rows (NULLs, or empty texts) are deleted, and `partitions` no longer counts them, under new ids: the
    same work is committed again. Rows of stages that write no such score rows stay: their items are pending.
    """
    scores = [score for score in declared() if score.unusable]
    steps = ", ".join(sorted({f"'{score.step}'" for score in scores}))
    complaints = f"FROM quarantine WHERE stage IN ({steps}) AND reason = ?"
    if not (n := lake.query(f"SELECT count(DISTINCT item) {complaints}", (reason,))[0][0]):
        return 0
    commit = begin()

    def body() -> None:
        for score in scores:
            of_step = f"SELECT item {complaints} AND stage IN ({_steps_of(score)})"
            where = f"{score.unusable} AND {score.key} IN ({of_step})"
            lost = f"SELECT shard, scorer, count(*) AS n FROM {score.table} WHERE {where} GROUP BY ALL"
            lake.execute(f"CREATE OR REPLACE TEMP TABLE {FORGOTTEN} AS {lost}", (reason,))
            lake.execute(f"DELETE FROM {score.table} WHERE {where}", (reason,))
            discount(lake, score.table, f"{score.table} {commit}", commit)
        sql = f"""UPDATE partitions SET partition_id = partition_id || ? WHERE "table" = 'quarantine' AND shard IN
            (SELECT shard {complaints})"""
        lake.execute(sql, (f":{commit}", reason))
        lake.execute(f"DELETE {complaints}", (reason,))

    lake.retrying(body)
    return n


def _steps_of(score: Score) -> str:
    """Return SQL for the steps that may have quarantined an item of ``score``: its own, and those of its inputs."""
    inputs = {*score.made_from, score.vector_table}
    steps = {score.step} | {each.step for each in declared() if each.table in inputs}
    return ", ".join(f"'{step}'" for step in sorted(steps))


# Temporary table that the caller creates: (shard, scorer, n), the number of rows that each group has lost.
FORGOTTEN = "forgotten"


def discount(lake: Lake, table: str, label: str, commit: int) -> None:
    """Make ``partitions`` count the rows that are left of ``table``, after rows were deleted in this transaction.

    FORGOTTEN has the number of deleted rows by shard and scorer; ``commit`` is the removal's. Partitions of these get
    new ids, so that the same work can be committed again, and lose the path of a file that is gone; then `subtract`.
    """
    here = f"\"table\" = '{table}' AND (shard, scorer) IN (SELECT shard, scorer FROM {FORGOTTEN})"
    lake.execute(f"UPDATE partitions SET partition_id = partition_id || ':{commit}' WHERE {here}")
    # DuckLake removes files without remaining rows, so no worker may be given their paths.
    left = f"SELECT filename FROM {table} WHERE shard IN (SELECT shard FROM {FORGOTTEN})"
    lake.execute(f"UPDATE partitions SET path = '' WHERE {here} AND concat(?, path) NOT IN ({left})", (lake.data_path,))
    subtract(lake, table, label, commit)


def subtract(lake: Lake, table: str, label: str, commit: int) -> None:
    """Insert a row of ``partitions`` with a negative count, and an id from ``label``, for each row of FORGOTTEN."""
    sql = f"""INSERT INTO partitions BY NAME SELECT ? AS "table", md5(concat(?, shard, scorer)) AS partition_id, shard,
        scorer, -n AS rows, 0 AS bytes, 0.0 AS seconds, '' AS run_id, ? AS "commit", '' AS path FROM {FORGOTTEN}"""
    lake.execute(sql, (table, label, commit))
