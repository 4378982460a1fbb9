"""Import other people's scores of pictures from a Parquet file, as a table that rules read."""

import re
from dataclasses import dataclass
from pathlib import Path

import duckdb

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.score_tables import table_shape
from pairmill.catalog.lake.stored_files import file_digest
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.declared import declared, is_free
from pairmill.catalog.terms.error import BadRecipe, Damaged, PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.catalog.terms.scores import IMPORTED, IMPORTED_NAME, imported_score
from pairmill.catalog.write.acts import KEYS, unreadable
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.scorer import Scorer

_NUMBERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "FLOAT", "DOUBLE"}  # fmt: skip


@dataclass(frozen=True)
class ImportedScores:
    """Result of importing a file of scores."""

    name: str  # name of the score, the column that rules read
    scorer: str  # digest of the import
    rows: int  # rows of the file with a value
    unmatched: int  # rows that name no picture of the lake
    added: int  # pictures that got a value by this import
    scored: int  # pictures that have a value of this file, by this import or an earlier one
    without: int  # pictures of the lake without a value of this file
    median: float | None  # median of the scored pictures' values; None without one


def import_scores(writer: Writer, file: Path, name: str, key: str, column: str) -> ImportedScores:
    """Import ``column`` of a Parquet file as the score ``name``; its rows name pictures by their column ``key``.

    A second import of the same file adds values for pictures that are new in the lake. Another file under the same name
    replaces the former: later runs and cuts read the newest import. Rows of the former stay for older versions.

    Works by SQL in one transaction; the file's keys and values are copied to a temporary table, which DuckDB spills.

    Raises LeaseLost, and PairmillError for an unfit file, column or value, two values of one picture, or a taken name.
    """
    lake, score = writer.lake, _declaration(name)
    _read(lake, file, key, column)
    settings = {"name": name, "key": key, "column": column, "file": file_digest(str(file))[:32]}
    scorer = Scorer(score.table, score.table, 1, settings)
    _match(lake, key, column)

    def body() -> int:
        if score.table not in lake.tables:
            lake.execute(f"CREATE TABLE {table_shape(score)}")
        held = f"SELECT sha256 FROM {score.table} WHERE scorer = '{scorer.digest}'"
        missing = f"import_values ANTI JOIN ({held}) USING (sha256)"
        n = lake.query(f"SELECT count(*) FROM {missing}")[0][0]
        if n or newest_import(lake, score.table) != scorer.digest:
            _insert(lake, score, scorer.digest, missing, writer.begin("import scores", [scorer]), writer.run_id)
        return n

    try:
        added = lake.retrying(body)
        lake.reload_tables()
        return _count_result(lake, score, scorer.digest, added)
    finally:
        for table in ("import_rows", "import_matched", "import_values"):
            lake.execute(f"DROP TABLE IF EXISTS {table}")


def newest_import(lake: Lake, table: str) -> str:
    """Return the digest of the newest import into ``table``, '' if there is none."""
    sql = 'SELECT scorer FROM partitions WHERE "table" = ? ORDER BY "commit" DESC LIMIT 1'
    return next((str(scorer) for (scorer,) in lake.query(sql, (table,))), "")


def _declaration(name: str) -> Score:
    """Return the declaration of the imported score ``name``. Raise PairmillError if it is no name, or is taken."""
    if not re.fullmatch(IMPORTED_NAME, name):
        raise PairmillError(f"--name {name!r}: a score's name has small letters, digits and underscores, 53 at most.")
    if not is_free(name, declared()):
        raise PairmillError(f"--name {name}: rules read another value under this name; choose another.")
    return imported_score(name)


def _read(lake: Lake, file: Path, key: str, column: str) -> None:
    """Create the temporary table ``import_rows(key, value)`` of the file's rows that have a value.

    Raises PairmillError if it is no Parquet file, lacks a column, or holds a value that is no finite number.
    """
    if not file.is_file():
        raise PairmillError(f"'{file}' is no file; name a Parquet file with the columns {key} and {column}.")
    table = f"read_parquet({quoted(str(file))})"
    try:
        types = {name: kind for name, kind, *_ in lake.query(f"DESCRIBE SELECT * FROM {table}")}
    except (duckdb.Error, Damaged) as error:
        raise unreadable(file, error) from error
    for name in (key, column):
        if name not in types:
            raise PairmillError(f"'{file}' has no column '{name}'; it has {', '.join(types)}.")
    kind = types[column]
    if kind not in _NUMBERS and not kind.startswith("DECIMAL"):
        raise PairmillError(f"'{file}': the column '{column}' is {kind}; a score is a number.")
    # FLOAT 5.1 is 5.0999999 as DOUBLE; by its decimal form it stays the number that the author wrote.
    text = f'CAST("{_escape(column)}" AS VARCHAR)' if kind == "FLOAT" else f'"{_escape(column)}"'
    name = 'lower(left(CAST("sha256" AS VARCHAR), 32))' if key == "sha256" else f'CAST("{key}" AS VARCHAR)'
    rows = f"""CREATE OR REPLACE TEMP TABLE import_rows AS SELECT {name} AS key, CAST({text} AS DOUBLE) AS
        value FROM {table} WHERE "{_escape(column)}" IS NOT NULL AND "{key}" IS NOT NULL"""
    try:
        lake.execute(rows)
    except (duckdb.Error, Damaged) as error:
        raise unreadable(file, error) from error
    odd = lake.query("SELECT count(*), min(key) FROM import_rows WHERE NOT isfinite(value)")[0]
    if odd[0]:
        raise PairmillError(
            f"'{file}': {odd[0]:,} values of '{column}' are no finite numbers, the first of {key} {odd[1]}; leave "
            "these rows out."
        )


def _match(lake: Lake, key: str, column: str) -> None:
    """Create the temporary tables ``import_matched`` and ``import_values(sha256, shard, value)``, a row a picture.

    ``import_matched`` has the file's rows that name a picture. A picture's row goes to its home shard. Raises
    PairmillError if two rows give one picture different values.
    """
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE import_matched AS SELECT key, value, sha256, shard FROM import_rows
        JOIN ({KEYS[key]}) USING (key) JOIN (SELECT sha256, shard FROM image_content) USING (sha256)""")
    lake.execute("""CREATE OR REPLACE TEMP TABLE import_values AS SELECT sha256, any_value(shard) AS shard,
        min(value) AS value, max(value) AS most FROM import_matched GROUP BY sha256""")
    twice = lake.query("SELECT count(*), min(sha256) FROM import_values WHERE value <> most")[0]
    if twice[0]:
        sha256 = twice[1]
        low, high = lake.query("SELECT value, most FROM import_values WHERE sha256 = ?", (sha256,))[0]
        raise PairmillError(
            f"{twice[0]:,} pictures have two values of '{column}': {sha256} has {low:g} and {high:g}; keep one row a "
            "picture."
        )


def _insert(lake: Lake, score: Score, scorer: str, rows: str, commit: int, run_id: str) -> None:
    """Insert ``rows`` (SQL) and one row of `partitions` a shard; without rows, one row that makes the import newest."""
    column = score.columns[0].name
    lake.execute(f"""INSERT INTO {score.table} BY NAME SELECT sha256, shard, '{scorer}' AS scorer, {commit} AS "commit",
        value AS "{column}" FROM {rows}""")
    of_commit = f'SELECT shard, count(*) AS n FROM {score.table} WHERE "commit" = {commit} GROUP BY shard'
    lake.execute(f"""INSERT INTO partitions BY NAME SELECT '{score.table}' AS "table",
        left(sha256('{score.table} {scorer} {commit} ' || shard), 32) AS partition_id, shard, '{scorer}' AS scorer,
        n AS rows, 0 AS bytes, 0.0 AS seconds, '{run_id}' AS run_id, {commit} AS "commit", '' AS path FROM
        ({of_commit} UNION ALL SELECT '', 0 WHERE NOT EXISTS ({of_commit}))""")


def _count_result(lake: Lake, score: Score, scorer: str, added: int) -> ImportedScores:
    """Count what the file gave to the lake's pictures."""
    column = score.columns[0].name
    rows, unmatched = lake.query("""SELECT count(*), count(*) FILTER (m.key IS NULL) FROM import_rows
        LEFT JOIN (SELECT DISTINCT key FROM import_matched) m USING (key)""")[0]
    sql = f'SELECT count(*), median("{column}") FROM {score.table} WHERE scorer = ?'
    scored, median = lake.query(sql, (scorer,))[0]
    pictures = lake.query("SELECT count(*) FROM image_content")[0][0]
    return ImportedScores(column, scorer, rows, unmatched, added, scored, pictures - scored, median)


def _escape(column: str) -> str:
    """Return a column's name for double quotes in SQL."""
    return column.replace('"', '""')


def with_imported(lake: Lake, plan: Plan) -> Plan:
    """Return the plan with the newest imports as scorers of imported scores. Raise BadRecipe if a score has none."""
    for table in [score.table for score in plan.scores if score.table.startswith(IMPORTED)]:
        if not (scorer := newest_import(lake, table)):
            name = table.removeprefix(IMPORTED)
            raise BadRecipe(
                f"recipe '{plan.recipe.name}', imported: lake '{lake.uri}' has no scores '{name}'; import them: "
                f"pairmill import-scores FILE.parquet --name {name} --lake {lake.uri}"
            )
        plan = plan.with_scorer(table, scorer)
    return plan
