"""Create the tables of declared scores when a lake is opened for writing; give readers empty ones in their place."""

from collections.abc import Sequence

from pairmill.catalog.lake import schema, snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Column, Score
from pairmill.catalog.terms.scores import HEAD, IMPORTED, named_in

Columns = dict[str, str]
# DuckLake's names of the types that scores have.
DUCKLAKE_TYPES = {
    "VARCHAR": "varchar", "BLOB": "blob", "BOOLEAN": "boolean", "INTEGER": "int32", "BIGINT": "int64",
    "UBIGINT": "uint64", "FLOAT": "float32", "DOUBLE": "float64",
}  # fmt: skip


def changes(lake: Lake) -> list[str]:
    """Return the SQL statements that create the missing tables and columns of declared scores; [] if none is missing.

    Raises PairmillError if a table of the lake has another shape than its declaration.
    """
    scores = _beyond_migrations()
    if _are_as_declared(lake, scores):
        return []
    held = _existing_columns(lake)
    return [statement for score in scores for statement in _changes(score, held.get(score.table), lake.uri)]


def add(lake: Lake) -> None:
    """Create the tables and columns that `changes` finds missing, in one transaction. The caller holds the lease."""
    lake.execute_all(changes(lake))
    lake.reload_tables()
    schema.record_no_rows(lake)


def add_heads(lake: Lake, scores: Sequence[Score]) -> None:
    """Create the tables that the lake lacks of the heads among ``scores``, temporary ones for a reader.

    A caller that opened the lake for writing holds the lease.
    """
    kind = "TEMP TABLE" if lake.read_only else "TABLE"
    missing = [score for score in scores if score.table.startswith(HEAD) and score.table not in lake.tables]

    if missing:
        lake.execute_all([f"CREATE {kind} {table_shape(score)}" for score in missing])
        lake.reload_tables()


def create_empty_tables(lake: Lake) -> None:
    """Create an empty temporary table for each declared score, and each table of a migration, that a reader lacks."""
    for score in _beyond_migrations():
        if score.table not in lake.tables:
            lake.execute(f"CREATE TEMP TABLE {table_shape(score)}")
    for table in sorted(schema.created() - lake.tables):
        columns = ", ".join(f'"{name}" {kind}' for name, kind in schema.columns(table).items())
        lake.execute(f"CREATE TEMP TABLE {table} ({columns})")


def scores_in(lake: Lake) -> tuple[Score, ...]:
    """Return the declared scores, and all others that the lake has tables of: undeclared ones, imported ones, heads."""
    return (*declared(), *undeclared(lake), *named_in(lake.tables))


def undeclared(lake: Lake) -> tuple[Score, ...]:
    """Return the scores in the lake that no installed package declares, derived from their tables alone.

    Published versions still need them. Those that a recipe names, imported and by heads, are not among them.
    """
    known = {score.table for score in declared()}
    taken = {name for score in declared() for name in score.rule_columns}
    found = []
    for table, columns in sorted(_existing_columns(lake).items()):
        of = "sentence" if "sha256" not in columns else "pair" if "content" in columns else "image"
        key = "content" if of == "sentence" else "sha256"
        if table in known or table.startswith((IMPORTED, HEAD)) or table in schema.created() | lake.views:
            continue
        if not {key, "shard", "scorer", "commit"} <= columns.keys():
            continue
        keys = {"sha256", "content", "shard", "scorer", "commit", "input_digest"}
        measured = {name: kind for name, kind in columns.items() if name not in keys and name not in taken}
        found.append(Score(table, of, tuple(Column(name, kind, "") for name, kind in measured.items()), package="?"))
    return tuple(found)


def _beyond_migrations() -> list[Score]:
    """Return the scores whose tables no migration creates; the other tables are part of the schema's versions."""
    return [score for score in declared() if score.table not in schema.created()]


def _are_as_declared(lake: Lake, scores: Sequence[Score]) -> bool:
    """Return whether the tables of all scores have their declared columns, by DuckLake's own table (2 ms, not 12)."""
    stored = snapshot.columns(lake.unchecked)
    return all(
        stored.get(score.table) == {name: DUCKLAKE_TYPES.get(kind) for name, kind in score.table_columns.items()}
        for score in scores
    )


def _existing_columns(lake: Lake) -> dict[str, Columns]:
    """Return columns and types of the lake's existing tables, by table."""
    held: dict[str, Columns] = {}
    sql = (
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'lake' "
        "AND schema_name = 'main' ORDER BY table_name, column_index"
    )
    for table, column, kind in lake.query(sql):
        held.setdefault(table, {})[column] = kind
    return held


def _changes(score: Score, held: Columns | None, uri: str) -> list[str]:
    """Return the statements that bring one score's table up to date; ``held`` are its columns, None without a table."""
    if held is None:
        return [f"CREATE TABLE {table_shape(score)}"]
    wanted = score.table_columns
    if odd := {name for name, kind in held.items() if wanted.get(name) != kind}:
        name = min(odd)
        raise PairmillError(
            f"lake '{uri}': its table '{score.table}' has a column '{name}' of type {held[name]}, the score "
            f"'{score.name}' of package '{score.package}' declares {wanted.get(name, 'none')}. Install the version of "
            "the package that wrote it, or have its author give the new table another name."
        )
    return [f'ALTER TABLE {score.table} ADD COLUMN "{name}" {wanted[name]}' for name in wanted if name not in held]


def table_shape(score: Score) -> str:
    """Return the table name and column definitions of a score, for CREATE TABLE."""
    columns = ", ".join(f'"{name}" {kind}' for name, kind in score.table_columns.items())
    return f"{score.table} ({columns})"
