"""Return what each table and column of a lake holds, from table_meanings.yaml beside this file."""

from functools import cache
from pathlib import Path
from typing import Any

from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.declared import declared


@cache
def _declared_meanings() -> dict[str, Any]:
    """Read the file, once a process: 30 CPU ms."""
    from pairmill.catalog.lake.yaml_text import parse_yaml  # 25 CPU ms, which opening a lake saves

    return parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))


def tables() -> dict[str, str]:
    """Return table -> what it holds, of the tables of migrations and of Pairmill's own scores."""
    return _declared_meanings()["tables"]


def columns() -> dict[str, str]:
    """Return column -> meaning wherever it stands, and "table.column" -> meaning in one table."""
    return _declared_meanings()["columns"] | text_columns.meanings()


def removed_by() -> dict[str, dict[str, str]]:
    """Return for each table the columns by which a removal finds rows, each with the kinds of item that it names."""
    return _declared_meanings()["removed_by"]


def table_meaning(table: str) -> str:
    """Return what ``table`` holds; '' for a table that neither a migration nor an installed package declares."""
    if table == "schema_version":
        return _declared_meanings()[table]["table"]
    score = next((each for each in declared() if each.table == table), None)
    return tables().get(table) or (f"Scores of {score.of}s by package {score.package}." if score else "")


def column_meaning(table: str, column: str) -> str:
    """Return what ``column`` of ``table`` holds; '' for an unknown column or table."""
    if table == "schema_version":
        return _declared_meanings()[table].get(column, "")
    try:
        return meaning(table, column) if table_meaning(table) else ""
    except KeyError:
        return ""


def meaning(table: str, column: str) -> str:
    """Return what ``column`` of ``table`` holds; '' for a column that a score declares. Raises KeyError if unknown."""
    for score in declared():
        for each in score.columns if score.table == table else ():
            if each.name == column:
                return each.meaning
    return columns().get(f"{table}.{column}") or columns()[column]
