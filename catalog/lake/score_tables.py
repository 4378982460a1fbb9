"""Make the tables of declared scores when a lake is opened for writing; stand in empty ones for its readers."""

from pairmill.catalog.lake import schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Column, Score

Columns = dict[str, str]


def changes(lake: Lake) -> list[str]:
    """List the statements that give every declared score its table and its columns; none when the lake has them.

    Raises PairmillError when a table of the lake has another shape than what declares it now.
    """
    scores = _beyond_migrations()
    held = _held(lake) if scores else {}
    return [statement for score in scores for statement in _changes(score, held.get(score.table), lake.uri)]


def add(lake: Lake) -> None:
    """Bring the tables of declared scores up to date, all or none. Hold the lease. Raises PairmillError as `changes`
    does."""

    def body() -> None:
        for statement in changes(lake):
            lake.execute(statement)

    lake.retrying(body)
    lake.reload_tables()


def create_empty_tables(lake: Lake) -> None:
    """Let a reader find every declared table: those that the lake lacks are empty ones of this connection."""
    scores = _beyond_migrations()
    held = _held(lake) if scores else {}
    for score in scores:
        if score.table not in held:
            lake.execute(f"CREATE TEMP TABLE {_shape(score)}")


def undeclared(lake: Lake) -> tuple[Score, ...]:
    """List scores that the lake holds and nothing installed declares, by their tables alone: for what was published."""
    known = {score.table for score in declared()}
    taken = {name for score in declared() for name in score.rule_columns}
    found = []
    for table, columns in sorted(_held(lake).items()):
        of = "image" if "sha256" in columns else "sentence"
        key = "sha256" if of == "image" else "content"
        if table in known or table in schema.released() or not {key, "shard", "scorer", "commit"} <= columns.keys():
            continue
        keys = {key, "shard", "scorer", "commit", "input_digest"}
        measured = {name: kind for name, kind in columns.items() if name not in keys and name not in taken}
        found.append(Score(table, of, tuple(Column(name, kind, "") for name, kind in measured.items()), package="?"))
    return tuple(found)


def _beyond_migrations() -> list[Score]:
    """Return the scores whose tables no migration makes; the others' are part of the schema's versions."""
    return [score for score in declared() if score.table not in schema.released()]


def _held(lake: Lake) -> dict[str, Columns]:
    """Return columns and types by table, as the lake has them."""
    held: dict[str, Columns] = {}
    sql = (
        "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE database_name = 'lake' "
        "AND schema_name = 'main' ORDER BY table_name, column_index"
    )
    for table, column, kind in lake.query(sql):
        held.setdefault(table, {})[column] = kind
    return held


def _changes(score: Score, held: Columns | None, uri: str) -> list[str]:
    if held is None:
        return [f"CREATE TABLE {_shape(score)}"]
    wanted = score.table_columns
    odd = {name for name, kind in held.items() if wanted.get(name) != kind}
    if odd:
        name = min(odd)
        raise PairmillError(
            f"lake '{uri}': its table '{score.table}' has a column '{name}' of type {held[name]}, the score "
            f"'{score.name}' of package '{score.package}' declares {wanted.get(name, 'none')}. Install the version of "
            "the package that wrote it, or have its author give the new table another name."
        )
    return [f'ALTER TABLE {score.table} ADD COLUMN "{name}" {wanted[name]}' for name in wanted if name not in held]


def _shape(score: Score) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in score.table_columns.items())
    return f"{score.table} ({columns})"
