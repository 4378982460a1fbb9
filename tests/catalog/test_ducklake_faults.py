"""DuckLake's published faults of deleted rows (ducklake #917, #1084, #1094, #1215, #1364) do not happen to a lake.

Rows reappeared, or stayed, after deletions that were stored partly as rows of the catalog and partly as Parquet, after
such deletions were flushed, and after a merge beside a deletion. Here a history of what Pairmill's own statements do to
a table is compared with a model after each step. Two writers at once are excluded by the lease (`test_lease.py`, and on
Postgres `test_elsewhere.py`); SQLite refuses them besides.
"""

import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.schema import INLINED_ROWS
from pairmill.catalog.write import lease
from pairmill.catalog.write.sweep import ANY_AGE, checkpoint, flush_inlined, sweep
from tests.examples import examples
from tests.worlds.shared import opened_new

Step = tuple[Literal["insert", "delete", "replace", "flush", "checkpoint", "sweep", "open"], int, int]
KEYS = st.integers(0, 2)
# Small changes of a bookkeeping table are rows of the catalog, larger ones are Parquet.
SIZES = st.sampled_from([1, 3, INLINED_ROWS + 1])
STEPS = st.tuples(
    st.sampled_from(["insert", "delete", "replace", "replace", "flush", "checkpoint", "sweep", "open"]), KEYS, SIZES
)


class History:
    """A table of (key, number) rows beside a set with the same changes."""

    def __init__(self, place: Path, table: str) -> None:
        self._place, self._table = place, table
        self._model: set[tuple[str, int]] = set()
        self._next = 0
        self._lake = create_or_open(place)

    def step(self, what: str, key: int, n: int) -> None:
        """Make one change of the table or of its files, then compare table and model."""
        if what == "open":
            self._lake.close()
            self._lake = create_or_open(self._place)
        with lease.writing(self._lake, "run", "work") as writer:
            if what in ("insert", "replace", "delete"):
                self._lake.retrying(lambda: self._change(what, str(key), n))
            elif what == "flush":
                flush_inlined(writer)
            elif what == "checkpoint":
                checkpoint(writer)
            elif what == "sweep":
                sweep(writer, ANY_AGE, 0)
        self._compare()

    def close(self) -> None:
        self._lake.close()

    def _change(self, what: str, key: str, n: int) -> None:
        mine = {row for row in self._model if row[0] == key}
        if what == "delete":  # some rows of a key by their numbers, so that parts of files stay
            gone = set(sorted(mine)[:n])
            numbers = ", ".join(str(number) for _, number in gone) or "-1"
            self._lake.execute(f'DELETE FROM {self._table} WHERE "commit" IN ({numbers})')
            self._model -= gone
            return
        if what == "replace":
            self._lake.execute(f"DELETE FROM {self._table} WHERE run_id = '{key}'")
            self._model -= mine
        rows = range(self._next, self._next + n)
        made = f"SELECT '{key}', i FROM range({rows.start}, {rows.stop}) t(i)"
        self._lake.execute(f'INSERT INTO {self._table} (run_id, "commit") {made}')
        self._model |= {(key, number) for number in rows}
        self._next += n

    def _compare(self) -> None:
        found = self._lake.query(f'SELECT run_id, "commit" FROM {self._table} ORDER BY ALL')
        assert found == sorted(self._model)
        highest = max((number for _, number in self._model), default=None)
        counted = self._lake.query(f'SELECT count(*), max("commit") FROM {self._table}')
        assert counted == [(len(self._model), highest)]
        if highest is not None:  # by the files' bounds
            assert self._lake.query(f'SELECT count(*) FROM {self._table} WHERE "commit" >= {highest}') == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize("table", ["partitions", "quarantine"])  # rows in the catalog, and in Parquet alone
@examples(20)
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_a_table_holds_what_a_model_does_after_any_history_of_changes_and_maintenance(table: str, steps: list[Step]):
    with tempfile.TemporaryDirectory() as folder:
        opened_new(Path(folder) / "lake").close()
        history = History(Path(folder) / "lake", table)
        try:
            for step in steps:
                history.step(*step)
        finally:
            history.close()


def test_a_deletion_that_a_merge_overtook_is_done_again_on_the_merged_file(lake: Lake):
    for number in range(3):
        lake.execute(f"INSERT INTO quarantine (run_id, \"commit\") VALUES ('run', {number})")
    tries = []
    with create_or_open(lake.uri) as theirs:

        def body() -> None:
            tries.append(lake.query("SELECT count(*) FROM quarantine")[0][0])
            lake.execute('DELETE FROM quarantine WHERE "commit" = 1')
            if len(tries) == 1:
                theirs.execute("CALL ducklake_merge_adjacent_files('lake', 'quarantine')")

        lake.retrying(body)
        assert tries == [3, 3]
        for each in (lake, theirs):
            assert each.query('SELECT "commit" FROM quarantine ORDER BY ALL') == [(0,), (2,)]
