"""Define the tables: a baseline, then migrations. A released one never changes; each change is a new migration."""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckdb

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import LEASE_TABLE
from pairmill.catalog.terms.declared import find

# The tables and views of format 1. Each table and column has its meaning in table_meanings.yaml.
_BASELINE = Path(__file__).with_name("baseline.sql").read_text(encoding="utf-8")
CANARY = "canary"  # kind of the rows of `funnel` that count wrong texts; beside 'image' and 'sentence'

# The number of the lake format: it changes if lakes must be made anew. Within a format, migrations change the schema.
FORMAT = 1
MIGRATIONS: tuple[str, ...] = (
    _BASELINE,
    "ALTER TABLE image_hash ADD COLUMN flat_colours VARCHAR",
    "ALTER TABLE pairs ADD COLUMN split VARCHAR; ALTER TABLE pairs ADD COLUMN size VARCHAR",
    "CREATE TABLE acts (act_id VARCHAR, act VARCHAR, dataset VARCHAR, sha256 VARCHAR, field VARCHAR, pattern VARCHAR, "
    'value VARCHAR, before VARCHAR, who VARCHAR, "at" TIMESTAMPTZ, "commit" BIGINT); '
    "CREATE TABLE edited_texts (dataset VARCHAR, version INTEGER, image_id VARCHAR, sha256 VARCHAR, field VARCHAR, "
    "before VARCHAR)",
    "CREATE TABLE wrong_pairs (dataset VARCHAR, version INTEGER, tried BIGINT, kept BIGINT, canaries BIGINT, "
    "wrong_before DOUBLE, share DOUBLE, low DOUBLE, high DOUBLE)",
    "ALTER TABLE pairs ADD COLUMN licence VARCHAR; ALTER TABLE pairs ADD COLUMN licence_url VARCHAR; "
    "ALTER TABLE pairs ADD COLUMN attribution VARCHAR",
    "CREATE TABLE opt_outs (host VARCHAR, file VARCHAR, url VARCHAR, outcome VARCHAR, http_status INTEGER, "
    'said VARCHAR, read_at TIMESTAMPTZ, shard VARCHAR, "commit" BIGINT)',
    "CREATE TABLE proofs (dataset VARCHAR, version INTEGER, judge VARCHAR, seeds INTEGER, pool BIGINT, of_kinds "
    'INTEGER, "at" TIMESTAMPTZ, line INTEGER, arm VARCHAR, pairs BIGINT, kinds INTEGER, held_out VARCHAR, '
    "recall DOUBLE, difference DOUBLE, half DOUBLE, detectable DOUBLE, verdict VARCHAR)",
    "ALTER TABLE caption_similarity ADD COLUMN caption_canary DOUBLE",
)
NEWEST = len(MIGRATIONS)
_CREATED = re.compile(r"CREATE TABLE (\w+)")

# Written by INSERT, a few rows at a time: stored as rows in the metadata database, not as one Parquet file per insert
# (300 commits: 0 files instead of 300, and `partitions` read in 10 ms instead of 19), until `sweep` flushes them. All
# other tables store their rows in Parquet only. A migration must not add columns to these: DuckLake 1.0 reads NULL for
# the inlined rows once a later schema version exists (seen with DuckDB 1.5.5); create a table beside it.
BOOKKEEPING = ("partitions", "scorers", "runs", "run_recipes", "commits", "bans", "exports", "datasets", "funnel",
               "rereads", "thresholds", "waves", "usage", "probes", "dataset_captioners",
               "file_digests", "unbelieved_usage", "dropped_versions", "judgement_samples", "judgements",
               "takedowns", "taken_bans", "amended_versions", "amended_pairs", "acts", "edited_texts", "wrong_pairs",
               "proofs", "schema_version")  # fmt: skip
INLINED_ROWS = 1000
# Written by INSERT in the order of their ids and read by single ids: for each DuckDB reads a row group. With row groups
# of 20,480 rows instead of 122,880, twelve lookups take 57 CPU ms instead of 206; a whole table takes no longer.
LOOKED_UP = ("image_content", "sentence_content", "pairs", "decisions")
LOOKED_UP_ROWS = 20_480
# DuckLake caches the statistics of a table that has some. For one that never had a row it asks again for each column:
# `SELECT *` takes 12 to 36 CPU ms, and 5 with statistics that say 0 rows. Many tables stay empty for long.
_COLUMNS_WITHOUT_ROWS = """INSERT INTO ducklake_table_column_stats (table_id, column_id, contains_null)
SELECT table_id, column_id, false FROM ducklake_column c WHERE end_snapshot IS NULL
AND table_id NOT IN (SELECT table_id FROM ducklake_table_stats)
AND NOT EXISTS (FROM ducklake_column p WHERE p.table_id = c.table_id AND p.parent_column = c.column_id)"""
_TABLES_WITHOUT_ROWS = """INSERT INTO ducklake_table_stats SELECT table_id, 0, 0, 0 FROM ducklake_table
WHERE end_snapshot IS NULL AND table_id NOT IN (SELECT table_id FROM ducklake_table_stats)"""
# Tables whose files workers open by path: maintenance joins small ones (`catalog.write.rewritten`) instead of DuckLake.
# The SQL names what all rows of a file have in common. Of the last three, workers read a scorer's newest rows alone.
_IS_NEWEST = '(scorer, "commit") IN (SELECT (scorer, max("commit")) FROM {0} GROUP BY scorer)'
READ_BY_PATH = {
    "payloads": "''",
    "sentences": "''",
    **dict.fromkeys(("image_embedding", "sentence_embedding", "vector_index"), "scorer"),
    **{name: f"CASE WHEN {_IS_NEWEST.format(name)} THEN scorer ELSE '' END"
       for name in ("centroids", "word_probabilities", "sentence_groups")},
}  # fmt: skip


class SchemaVersion(NamedTuple):
    """The lake's format, and the number of its migrations; both 0 for an empty lake, format 0 before format 1."""

    format: int
    migrations: int


def version(lake: Lake) -> SchemaVersion:
    """Return the lake's format and the number of its last migration."""
    found = snapshot.largest(lake.unchecked, "schema_version")
    return SchemaVersion(int(found.get("format", 0)), int(found.get("version", 0)))


def migrate(lake: Lake) -> None:
    """Apply the missing migrations, each in one transaction with its row in `schema_version`. Requires the lease."""
    if version(lake).migrations == 0:
        lake.execute(
            "CREATE TABLE IF NOT EXISTS schema_version (format INTEGER, version INTEGER, applied_at TIMESTAMPTZ)"
        )
        lake.execute("CALL ducklake_set_option('lake', 'data_inlining_row_limit', 0)")
        inline(lake, "schema_version")
    for number in range(version(lake).migrations + 1, NEWEST + 1):
        lake.retrying(lambda number=number: _apply(lake, number))
    lake.reload_tables()
    for table in BOOKKEEPING:
        if table in lake.tables:
            inline(lake, table)
    for table in LOOKED_UP:
        _set(lake, table, "parquet_row_group_size", LOOKED_UP_ROWS)
    record_no_rows(lake)


def record_no_rows(lake: Lake) -> None:
    """Store statistics that say 0 rows for each table that never had a row. Requires the lease."""

    def body() -> None:
        lake.metadata.write(_COLUMNS_WITHOUT_ROWS)
        lake.metadata.write(_TABLES_WITHOUT_ROWS)

    lake.metadata.retrying(body)


def inline(lake: Lake, table: str, rows: int = INLINED_ROWS) -> None:
    """Store inserts and deletes of up to ``rows`` rows of ``table`` in the metadata database, larger ones in Parquet.

    Within a transaction, this holds for its later statements.
    """
    _set(lake, table, "data_inlining_row_limit", rows)


def _set(lake: Lake, table: str, option: str, value: int) -> None:
    """Set a DuckLake option of one table."""
    lake.execute(f"CALL ducklake_set_option('lake', '{option}', {value}, table_name => '{table}')")


def _apply(lake: Lake, number: int) -> None:
    """Run the statements of migration ``number`` (from 1) and record it."""
    for statement in MIGRATIONS[number - 1].split(";"):
        if statement.strip():
            lake.execute(statement)
    lake.execute("INSERT INTO schema_version VALUES (?, ?, now())", (FORMAT, number))


def columns(table: str) -> dict[str, str]:
    """Return names and DuckDB types of a table's or view's columns, by the newest schema or its declaration.

    Raises KeyError if there is no such table.
    """
    return released()[table] if table in released() else find(table).table_columns


@cache
def created() -> frozenset[str]:
    """Return the names of the tables that the migrations create; `released`, with their columns, takes 30 ms."""
    return frozenset(_CREATED.findall(";".join(MIGRATIONS)))


@cache
def released() -> dict[str, dict[str, str]]:
    """Return column names and DuckDB types of the tables and views that the migrations create."""
    found: dict[str, dict[str, str]] = {}
    with duckdb.connect() as connection:
        connection.execute("ATTACH ':memory:' AS __ducklake_metadata_lake; USE __ducklake_metadata_lake")
        connection.execute(f"{LEASE_TABLE}; USE memory; {';'.join(MIGRATIONS)}")
        sql = "SELECT table_name, column_name, data_type FROM duckdb_columns() ORDER BY table_name, column_index"
        for table, column, kind in connection.execute(sql).fetchall():
            found.setdefault(table, {})[column] = kind
    return found
