"""Define the tables: a baseline, then migrations. A released one never changes; each change is a new migration."""

import re
from functools import cache
from typing import NamedTuple

import duckdb

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import LEASE_TABLE
from pairmill.catalog.terms.declared import find

# Each table and column has its meaning in `table_meanings`.
_BASELINE = """
CREATE TABLE documents (document_id VARCHAR, source VARCHAR, uri VARCHAR, title VARCHAR, metadata VARCHAR, unit VARCHAR,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE images (image_id VARCHAR, document_id VARCHAR, position INTEGER, url VARCHAR, alt_text VARCHAR,
    sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, n_bytes BIGINT, animated BOOLEAN,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE sentences (sentence_id VARCHAR, document_id VARCHAR, position INTEGER, text VARCHAR, content VARCHAR,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE payloads (sha256 VARCHAR, bytes BLOB, uri VARCHAR, "offset" BIGINT, length BIGINT, shard VARCHAR,
    "commit" BIGINT);
CREATE TABLE inputs (uri VARCHAR, size BIGINT, etag VARCHAR, source VARCHAR, retries INTEGER, reader VARCHAR,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE image_content (sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, n_bytes BIGINT,
    shard VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_content (content VARCHAR, text VARCHAR, shard VARCHAR, "commit" BIGINT);
CREATE TABLE image_quality (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, sharpness DOUBLE,
    brightness DOUBLE, colourfulness DOUBLE, image_entropy DOUBLE);
CREATE TABLE image_hash (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, phash UBIGINT);
CREATE TABLE image_embedding (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, image_vector BLOB);
CREATE TABLE sentence_quality (content VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, n_words INTEGER,
    text_entropy DOUBLE, has_url BOOLEAN, has_emoji BOOLEAN, is_boilerplate BOOLEAN, language VARCHAR);
CREATE TABLE sentence_embedding (content VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, sentence_vector BLOB);
CREATE TABLE duplicate_edges (a VARCHAR, b VARCHAR, kind VARCHAR, distance DOUBLE, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE image_groups (sha256 VARCHAR, group_id VARCHAR, group_size INTEGER, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE centroids (kind VARCHAR, cluster INTEGER, vector BLOB, n BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE clusters (kind VARCHAR, key VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, cluster INTEGER);
CREATE TABLE vector_index (key VARCHAR, cluster INTEGER, probe INTEGER, index_vector BLOB, shard VARCHAR,
    scorer VARCHAR, "commit" BIGINT);
CREATE TABLE match_candidates (sha256 VARCHAR, content VARCHAR, similarity DOUBLE, shard VARCHAR, scorer VARCHAR,
    "commit" BIGINT);
CREATE TABLE image_similarity (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    alt_similarity DOUBLE, match_similarity DOUBLE, best_similarity DOUBLE);
CREATE TABLE captions (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, captioner VARCHAR,
    prompt VARCHAR, text VARCHAR, status VARCHAR, n_tokens INTEGER, seconds DOUBLE, finish_reason VARCHAR,
    prompt_tokens INTEGER, retries INTEGER);
CREATE TABLE caption_similarity (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    caption_similarity DOUBLE);
CREATE TABLE tags (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, "commit" BIGINT, tags VARCHAR[],
    tag_similarities DOUBLE[]);
CREATE TABLE synthetic (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, input_digest VARCHAR, "commit" BIGINT,
    prompt VARCHAR, synthetic_text VARCHAR, synthetic_status VARCHAR, n_tokens INTEGER, seconds DOUBLE,
    finish_reason VARCHAR, prompt_tokens INTEGER, retries INTEGER, synthetic_unsupported INTEGER);
CREATE TABLE quarantine (item VARCHAR, source VARCHAR, stage VARCHAR, reason VARCHAR, detail VARCHAR,
    payload_ref VARCHAR, run_id VARCHAR, shard VARCHAR, "commit" BIGINT);
CREATE TABLE partitions ("table" VARCHAR, partition_id VARCHAR, shard VARCHAR, scorer VARCHAR, rows BIGINT,
    bytes BIGINT, seconds DOUBLE, run_id VARCHAR, "commit" BIGINT, path VARCHAR,
    in_content_order BOOLEAN DEFAULT false);
CREATE TABLE scorers (digest VARCHAR, name VARCHAR, version INTEGER, settings VARCHAR, model VARCHAR,
    made_from VARCHAR[], libraries VARCHAR, "commit" BIGINT);
CREATE TABLE runs (run_id VARCHAR, flow VARCHAR, recipe VARCHAR, state VARCHAR, started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ, detail VARCHAR);
CREATE TABLE commits ("commit" BIGINT, run_id VARCHAR, step VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE bans (sha256 VARCHAR, reason VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE exports (dataset VARCHAR, version INTEGER, format VARCHAR, uri VARCHAR, files BIGINT, rows BIGINT,
    bytes BIGINT, "at" TIMESTAMPTZ);
CREATE TABLE datasets (name VARCHAR, version INTEGER, recipe VARCHAR, recipe_digest VARCHAR, scorers VARCHAR[],
    "commit" BIGINT, content_digest VARCHAR, amended BOOLEAN, n_pairs BIGINT, recall DOUBLE, run_id VARCHAR,
    created_at TIMESTAMPTZ);
CREATE TABLE pairs (dataset VARCHAR, version INTEGER, image_id VARCHAR, sha256 VARCHAR, document_id VARCHAR,
    raw_image_url VARCHAR, text1 VARCHAR, text2 VARCHAR, text3 VARCHAR, syn_text VARCHAR, caption VARCHAR,
    alt_text VARCHAR, tags VARCHAR[], width INTEGER, height INTEGER, similarity1 DOUBLE, similarity2 DOUBLE,
    similarity3 DOUBLE, best_similarity DOUBLE, cluster INTEGER, caption_status VARCHAR, synthetic_status VARCHAR,
    caption_similarity DOUBLE, synthetic_similarity DOUBLE, captioner VARCHAR, text4 VARCHAR, text5 VARCHAR,
    similarity4 DOUBLE, similarity5 DOUBLE);
CREATE TABLE decisions (dataset VARCHAR, version INTEGER, item_id VARCHAR, kind VARCHAR, dropped_by VARCHAR,
    value VARCHAR, failed UBIGINT);
CREATE TABLE funnel (dataset VARCHAR, version INTEGER, kind VARCHAR, position INTEGER, rule VARCHAR, n_in BIGINT,
    n_dropped BIGINT);
CREATE TABLE run_recipes (run_id VARCHAR, recipe VARCHAR, sources VARCHAR[]);
CREATE TABLE links (url VARCHAR, document_id VARCHAR, position INTEGER, alt_text VARCHAR, source VARCHAR,
    reading_order INTEGER, shard VARCHAR, "commit" BIGINT);
CREATE TABLE fetches (url VARCHAR, final_url VARCHAR, http_status INTEGER, content_type VARCHAR, etag VARCHAR,
    last_modified VARCHAR, sha256 VARCHAR, width INTEGER, height INTEGER, format VARCHAR, animated BOOLEAN,
    n_bytes BIGINT, exif VARCHAR, reason VARCHAR, detail VARCHAR, passing BOOLEAN, attempts INTEGER, seconds DOUBLE,
    fetched_at TIMESTAMPTZ, shard VARCHAR, "commit" BIGINT);
CREATE TABLE superseded (document_id VARCHAR, gone BOOLEAN, "commit" BIGINT);
CREATE TABLE rereads (source VARCHAR, unit VARCHAR, "commit" BIGINT);
CREATE TABLE word_counts (word VARCHAR, n BIGINT, shard VARCHAR, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE word_probabilities (word VARCHAR, p DOUBLE, sentences BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE thresholds (digest VARCHAR, kind VARCHAR, rule VARCHAR, "drop" DOUBLE, scorers VARCHAR[], threshold DOUBLE,
    n BIGINT, n_dropped BIGINT, run_id VARCHAR, "commit" BIGINT);
CREATE TABLE noun_counts (phrase VARCHAR, is_plural BOOLEAN, n BIGINT, shard VARCHAR, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE tag_words (position INTEGER, word VARCHAR, mined BOOLEAN, sentences BIGINT, grounding DOUBLE,
    threshold DOUBLE, pictures BIGINT, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_edges (a VARCHAR, b VARCHAR, kind VARCHAR, distance DOUBLE, scorer VARCHAR, "commit" BIGINT);
CREATE TABLE sentence_groups (content VARCHAR, group_id VARCHAR, group_size INTEGER, cluster INTEGER, scorer VARCHAR,
    "commit" BIGINT);
CREATE TABLE waves (run_id VARCHAR, wave INTEGER, asked BIGINT, passed BIGINT, kept BIGINT, "commit" BIGINT);
CREATE TABLE usage (partition_id VARCHAR, run_id VARCHAR, scorer VARCHAR, rows BIGINT, seconds DOUBLE,
    prompt_tokens BIGINT, tokens BIGINT, discarded_tokens BIGINT, retries BIGINT, cost DOUBLE, "commit" BIGINT);
CREATE TABLE probes (run_id VARCHAR, model VARCHAR, endpoint VARCHAR, server VARCHAR, answers VARCHAR[],
    agreement DOUBLE, "at" TIMESTAMPTZ);
CREATE TABLE dataset_captioners (dataset VARCHAR, version INTEGER, position INTEGER, captioner VARCHAR, scorer VARCHAR,
    similarity_scorer VARCHAR);
CREATE TABLE file_digests (path VARCHAR, sha256 VARCHAR);
CREATE TABLE unbelieved_usage (partition_id VARCHAR, run_id VARCHAR, scorer VARCHAR, unbelieved_prompt_tokens BIGINT,
    unbelieved_tokens BIGINT, "commit" BIGINT);
CREATE TABLE dropped_versions (name VARCHAR, version INTEGER, content_digest VARCHAR, n_pairs BIGINT,
    created_at TIMESTAMPTZ, dropped_at TIMESTAMPTZ);
CREATE TABLE judgement_samples (sample_id VARCHAR, dataset VARCHAR, version INTEGER, content_digest VARCHAR,
    rule VARCHAR, quantity VARCHAR, threshold DOUBLE, population BIGINT, seed VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE judgements (judgement_id VARCHAR, sample_id VARCHAR, position BIGINT, image_id VARCHAR, text VARCHAR,
    value DOUBLE, verdict VARCHAR, judge VARCHAR, "at" TIMESTAMPTZ);
CREATE TABLE takedowns (takedown_id VARCHAR, reason VARCHAR, report VARCHAR, "commit" BIGINT, "at" TIMESTAMPTZ);
CREATE TABLE taken_bans (kind VARCHAR, value VARCHAR, takedown_id VARCHAR);
CREATE TABLE amended_versions (dataset VARCHAR, version INTEGER, takedown_id VARCHAR, digest_before VARCHAR,
    digest_after VARCHAR, pairs_removed BIGINT, pairs_changed BIGINT);
CREATE TABLE amended_pairs (dataset VARCHAR, version INTEGER, takedown_id VARCHAR, sha256 VARCHAR, before VARCHAR,
    after VARCHAR);
CREATE VIEW lease AS SELECT holder, run_id, purpose, heartbeat::TIMESTAMPTZ AS heartbeat,
    expires::TIMESTAMPTZ AS expires, waiting FROM __ducklake_metadata_lake.pairmill_lease;
CREATE VIEW matches AS SELECT sha256, CAST(row_number() OVER (PARTITION BY scorer, sha256 ORDER BY similarity DESC,
    content) AS INTEGER) AS rank, content, similarity, shard, scorer, "commit" FROM match_candidates;
CREATE VIEW sentence_repeats AS SELECT content, count(*) AS repeats FROM sentences GROUP BY content;
CREATE VIEW fetched AS SELECT * FROM fetches QUALIFY row_number() OVER (PARTITION BY url ORDER BY "commit" DESC) = 1;
"""

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
               "schema_version")  # fmt: skip
INLINED_ROWS = 1000
# Written by INSERT in the order of their ids and read by single ids, for each of which DuckDB reads a row group. With
# row groups of 20,480 rows instead of 122,880, twelve lookups take 57 CPU ms instead of 206; reading a whole table
# takes no longer.
LOOKED_UP = ("image_content", "sentence_content", "pairs", "decisions")
LOOKED_UP_ROWS = 20_480
# Read by nearly every work list, and empty unless a source has changed. DuckLake caches the statistics of a table that
# has some; for one that never had a row it looks again at each step of a plan: 14 of 25 CPU ms. So they say 0 rows.
EMPTY_AS_A_RULE = frozenset({"superseded"})
# Workers open these files by the paths in `partitions`, so they are never compacted, however small.
READ_BY_PATH = ("payloads", "sentences", "image_embedding", "sentence_embedding", "vector_index", "centroids",
                "word_probabilities", "sentence_groups")  # fmt: skip


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
    for table in EMPTY_AS_A_RULE & lake.tables:
        lake.metadata.write(
            "INSERT INTO ducklake_table_stats SELECT table_id, 0, 0, 0 FROM ducklake_table "
            f"WHERE table_name = '{table}' AND table_id NOT IN (SELECT table_id FROM ducklake_table_stats)"
        )


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
