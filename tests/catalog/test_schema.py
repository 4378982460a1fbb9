from pathlib import Path

import pytest

from infra.empty_catalog import by_migrations
from pairmill.catalog.lake import comments, schema, score_tables
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import BadQuery, LeaseHeld, NewerLake, PairmillError
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition


def add_migration(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    """Let this Pairmill have one migration more than the lakes that were made so far."""
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, sql))
    monkeypatch.setattr(schema, "NEWEST", schema.NEWEST + 1)


def make_lake(place: Path) -> None:
    """Make a lake with rows in Parquet and in the metadata database."""
    with create_or_open(place) as lake, lease.writing(lake, "old", "test") as writer:
        writer.commit([partition(lake, "p", ["a", "b"], writer.begin("step"))])


def test_an_older_lake_is_readable_and_a_writer_brings_it_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lake(tmp_path / "lake")
    before = schema.NEWEST
    add_migration(monkeypatch, "CREATE TABLE later (a INTEGER)")
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT sha256 FROM image_hash ORDER BY ALL") == [("a",), ("b",)]
        assert schema.version(lake) == (schema.FORMAT, before)
        with pytest.raises(BadQuery):
            lake.query("SELECT * FROM later")
    with create_or_open(tmp_path / "lake") as lake:
        assert schema.version(lake) == (schema.FORMAT, schema.NEWEST)
        assert lake.query("SELECT * FROM later") == []
        assert lake.query("SELECT sha256 FROM image_hash ORDER BY ALL") == [("a",), ("b",)]
        assert lake.query("SELECT partition_id, in_content_order FROM partitions") == [("p", False)]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_lake_of_another_format_is_refused_in_one_line_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    make_lake(tmp_path / "lake")
    for later, error, told in (
        (0, NewerLake, rf"made by a newer Pairmill \(format {schema.FORMAT}, .*Install that version"),
        (
            9,
            PairmillError,
            rf"has format {schema.FORMAT}, and this Pairmill reads format 9. Make the lake anew: `pairmill",
        ),
    ):
        monkeypatch.setattr(schema, "FORMAT", later)
        with pytest.raises(error, match=told) as refused:
            create_or_open(tmp_path / "lake", read_only)
        assert "\n" not in str(refused.value)
    monkeypatch.undo()
    with create_or_open(tmp_path / "lake", read_only) as lake:
        assert lake.query("SELECT sha256 FROM image_hash ORDER BY ALL") == [("a",), ("b",)]


def test_a_lake_from_before_the_formats_is_refused(tmp_path: Path) -> None:
    create_or_open(tmp_path / "lake").close()
    with create_or_open(tmp_path / "lake") as lake:
        lake.execute("DROP TABLE schema_version")
        lake.execute("CREATE TABLE schema_version (version INTEGER, applied_at TIMESTAMPTZ)")
        lake.execute("INSERT INTO schema_version VALUES (23, now())")
    with pytest.raises(PairmillError, match="has format 0, and this Pairmill reads format 1"):
        create_or_open(tmp_path / "lake", read_only=True)


def test_a_column_added_by_a_migration_is_null_in_the_rows_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_lake(tmp_path / "lake")
    add_migration(monkeypatch, "ALTER TABLE image_hash ADD COLUMN dhash UBIGINT")
    with create_or_open(tmp_path / "lake") as lake, lease.writing(lake, "new", "test") as writer:
        assert lake.query("SELECT DISTINCT dhash FROM image_hash") == [(None,)]
        with pytest.raises(Exception, match=r"dhash"):  # a file of the older shape is not taken for one of the newer
            writer.commit([partition(lake, "q", ["c"])])


def test_a_migration_that_fails_leaves_the_lake_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_or_open(tmp_path / "lake").close()
    with monkeypatch.context() as patch:
        add_migration(patch, "CREATE TABLE extra (a INTEGER); SELECT nothing")
        with pytest.raises(BadQuery):
            create_or_open(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        assert schema.version(lake).migrations == schema.NEWEST
        with pytest.raises(BadQuery):
            lake.query("SELECT * FROM extra")


def test_no_one_migrates_under_a_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pairmill.catalog.lake.opening.WAIT_SECONDS", 0)
    older = create_or_open(tmp_path / "lake")
    add_migration(monkeypatch, "CREATE TABLE later (a INTEGER)")
    with older, lease.writing(older, "run", "curate"), pytest.raises(LeaseHeld, match=r"'curate'"):
        create_or_open(tmp_path / "lake")


def test_the_columns_told_are_those_of_a_real_lake(tmp_path: Path) -> None:
    with create_or_open(tmp_path / "lake") as lake:
        sql = "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'lake'"
        found: dict[str, dict[str, str]] = {}
        for table, column, kind in lake.query(sql + " ORDER BY table_name, column_index"):
            found.setdefault(table, {})[column] = kind
        asked = score_tables._beyond_migrations()
        assert score_tables._are_as_declared(lake, asked), "every opening for writing would read all tables' statistics"
        assert lake.tables - {"schema_version"} == schema.created() | {score.table for score in asked}
    del found["schema_version"]
    assert found == {table: schema.columns(table) for table in found}
    assert len(found) > 30
    with pytest.raises(KeyError):
        schema.columns("nothing")


def test_score_columns_have_names_of_their_own() -> None:
    """A predicate names a column without its table."""
    keys = {"sha256", "content", "shard", "scorer", "commit", "input_digest"}
    scores = ("image_quality", "image_hash", "image_embedding", "sentence_quality", "sentence_embedding")
    scores += ("image_similarity", "caption_similarity")
    names = [name for table in scores for name in schema.columns(table) if name not in keys]
    assert len(names) == len(set(names))


def test_a_new_lake_is_what_the_migrations_make(tmp_path: Path) -> None:
    """`python -m infra.empty_catalog` writes the shipped catalog anew."""
    made = []
    for lake in (tmp_path / "copied", by_migrations(tmp_path / "migrated").parent):
        with create_or_open(lake) as opened:
            made.append(_everything(opened))
    assert made[0] == made[1]
    assert len(made[0]["columns"]) > 400 and len(made[0]["options"]) > 20
    with create_or_open(tmp_path / "copied") as lake, lease.writing(lake, "run", "test"):
        assert comments.describe(lake) == 0


def _everything(lake: Lake) -> dict[str, list[tuple]]:
    """What a catalog holds but for ids, which have no order, and times."""
    own = "__ducklake_metadata_lake"
    tables = f"{own}.ducklake_table"
    asked = {
        "columns": f"SELECT table_name, c.* EXCLUDE (table_id) FROM {own}.ducklake_column c JOIN {tables} "
        "USING (table_id)",
        "views": f"SELECT view_name, sql, begin_snapshot, end_snapshot FROM {own}.ducklake_view",
        "options": f"SELECT m.key, m.value, table_name FROM {own}.ducklake_metadata m LEFT JOIN {tables} t "
        "ON m.scope = 'table' AND t.table_id = m.scope_id WHERE key <> 'data_path'",
        "snapshots": f"SELECT snapshot_id, schema_version, next_catalog_id FROM {own}.ducklake_snapshot",
        "inlined": f"SELECT t.table_name, i.schema_version FROM {own}.ducklake_inlined_data_tables i JOIN {tables} t "
        "USING (table_id)",
        "version": "SELECT format, version FROM schema_version",
        "ours": f"SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = '{own}' "
        "AND table_name LIKE 'pairmill%'",
    }
    return {name: lake.query(f"SELECT * FROM ({sql}) ORDER BY ALL") for name, sql in asked.items()}


def test_the_statistics_of_a_table_that_never_had_a_row_are_read_once(tmp_path: Path) -> None:
    with create_or_open(tmp_path / "lake") as lake:
        lake.connection.execute("CALL enable_logging('QueryLog', storage = 'memory')")
        for table in sorted(lake.tables):
            lake.query(f'SELECT * FROM "{table}"')
        sql = "SELECT message FROM duckdb_logs WHERE message LIKE '%ducklake_table_stats%'"
        asked = [message for (message,) in lake.connection.execute(sql).fetchall()]
        read = {
            table: sum(f"table_id = {number}\n" in each for each in asked)
            for table, number in lake.metadata.read("SELECT table_name, table_id FROM ducklake_table")
        }
    assert set(read.values()) == {1}


def test_a_table_that_was_recorded_as_empty_gets_the_statistics_of_its_rows(tmp_path: Path) -> None:
    sql = (
        "SELECT column_id - first, contains_null, min_value, max_value, record_count FROM "
        "(SELECT *, min(column_id) OVER () AS first FROM ducklake_table_column_stats WHERE table_id = {0}) "
        "JOIN ducklake_table_stats USING (table_id) ORDER BY ALL"
    )
    with create_or_open(tmp_path / "lake") as lake:
        lake.execute("CREATE TABLE never_recorded AS FROM bans WHERE false")
        schema.inline(lake, "never_recorded")
        found = []
        for table in ("bans", "never_recorded"):
            lake.execute(f"INSERT INTO {table} SELECT 'k' || i, NULL, '2026-11-01' FROM range(3) r(i)")
            lake.execute(f"INSERT INTO {table} SELECT 'a' || i, NULL, '2026-11-02' FROM range(2000) r(i)")
            [(number,)] = lake.metadata.read(f"SELECT table_id FROM ducklake_table WHERE table_name = '{table}'")
            found.append(lake.metadata.read(sql.format(number)))
            assert lake.query(f"SELECT count(*) FROM {table} WHERE sha256 >= 'k' AND reason IS NULL") == [(3,)]
    assert found[0] == found[1] != []
