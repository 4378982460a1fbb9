"""Declare scores that a user imports into a lake from a file, each as a table of one column."""

from collections.abc import Iterable

from pairmill.catalog.terms.score import Column, Score, Stage

PREFIX = "imported_"
# With the prefix, a name fits into the 63 bytes of Postgres' longest name.
NAME = r"^[a-z][a-z0-9_]{0,52}$"


def imported_score(name: str) -> Score:
    """Return the declaration of the imported score ``name``: table ``imported_NAME``, column ``NAME``.

    No op computes it, so nothing of it is ever pending, and its rules apply before anything is computed.
    """
    column = Column(name, "DOUBLE", "imported by `pairmill import-scores`; NULL where the file had no row")
    return Score(PREFIX + name, "image", (column,), Stage.INGEST, on_demand=False, step="import scores")


def imported_in(tables: Iterable[str]) -> tuple[Score, ...]:
    """Return the imported scores among the tables of a lake, by name."""
    return tuple(imported_score(table.removeprefix(PREFIX)) for table in sorted(tables) if table.startswith(PREFIX))
