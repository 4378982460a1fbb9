"""Compare a lake with the states that an undisturbed lake has committed, snapshot by snapshot."""

from __future__ import annotations

from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open

# Digests of a table's rows, which do not depend on their order.
_ROWS = "SELECT count(*), coalesce(bit_xor(hash(t)), 0), coalesce(sum(hash(t)), 0) FROM {table} t"
_SNAPSHOT = "SELECT id FROM ducklake_current_snapshot('lake')"
State = dict[str, tuple]


def newest_state(place: Path) -> tuple[int, State]:
    """Return the snapshot of a lake, and the digest of each table's rows. Reads every row."""
    with create_or_open(str(place), read_only=True) as lake:
        return lake.query(_SNAPSHOT)[0][0], _state(lake)


class CommittedStates:
    """The states of a finished lake at each of its snapshots, computed when they are asked for."""

    def __init__(self, place: Path) -> None:
        self._place, self._known = place, dict[int, State]()

    def at(self, snapshot: int) -> State:
        """Return the digest of each table's rows at a snapshot."""
        if snapshot not in self._known:
            with create_or_open(str(self._place), read_only=True, at=snapshot) as lake:
                self._known[snapshot] = _state(lake)
        return self._known[snapshot]


def _state(lake: Lake) -> State:
    tables = [name for (name,) in lake.query("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'")]
    return {table: lake.query(_ROWS.format(table=f'"{table}"'))[0] for table in sorted(tables)}
