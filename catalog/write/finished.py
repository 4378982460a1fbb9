"""Remember of completed runs what they were asked and found, and the state of the lake in which nothing is left to do.

A table of the metadata database, as the lease: outside of DuckLake's snapshots, on SQLite and Postgres alike, and part
of every copy of the catalog. Its rows may be deleted at any time; that costs one run.
"""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import holder_of
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.metadata import FINISHED, FINISHED_TABLE

if TYPE_CHECKING:
    from pairmill.catalog.write.lease import Writer  # Arrow, 0.1 CPU s, which who only asks does without

KEPT = 100
# Tables that say what was done and that no work list and no cut reads: a run that finds nothing writes into two.
_TOLD_ONLY = ("runs", "run_recipes", "exports")
_ROWS = ("inlined_insert", "inlined_delete", "inserted_into_table", "deleted_from_table")


@dataclass(frozen=True)
class Finished:
    """A completed run: digests of what was ``asked`` and of the ``inputs`` that it read beside the lake, the dataset
    that it came to, and the notes that hold for as long as nothing changes."""

    asked: str
    inputs: str
    dataset: str
    version: int
    notes: tuple[str, ...] = ()


def remember(writer: "Writer", *finished: Finished) -> None:
    """Remember a completed run, by each way to ask for it, with the state of the lake; in place of what was asked the
    same. Call it last, under the lease. Raises LeaseLost, and Damaged, since an answer would hide a damaged file."""
    import pyarrow as pa

    for table in sorted(writer.lake.tables):  # those of a copy that the run did not read have no stamp on record yet
        writer.lake.check_files(table)
    metadata, now = writer.lake.metadata, datetime.now(UTC).isoformat()
    found = state(writer.lake)
    rows = [
        {
            "asked": each.asked,
            "inputs": each.inputs,
            "state": found,
            "dataset": each.dataset,
            "version": each.version,
            "notes": json.dumps(each.notes),
            "run_id": writer.run_id,
            "finished": now,
        }
        for each in finished
    ]
    writer.check()  # after the state was read: what another holder does later has another state
    if not metadata.has_finished():
        metadata.write(FINISHED_TABLE)
    metadata.replace(FINISHED, "asked", pa.Table.from_pylist(rows))
    newest = f"SELECT asked FROM {FINISHED} ORDER BY finished DESC LIMIT {KEPT}"
    if metadata.read(f"SELECT count(*) FROM {FINISHED}")[0][0] > KEPT:
        metadata.write(f"DELETE FROM {FINISHED} WHERE asked NOT IN ({newest})")


def recall(lake: Lake, asked: str) -> Finished | None:
    """Return the completed run that was asked the same, if the lake is as that left it: no table that a run reads has
    changed, every file has the stamp on record, and nobody holds the lease. A killed run's lease is held too."""
    if not lake.metadata.has_finished():
        return None
    columns = "asked, inputs, dataset, version, notes, state"
    # A literal: DuckDB imports pandas (0.28 s) for the first statement with parameters.
    rows = lake.metadata.read(f"SELECT {columns} FROM {FINISHED} WHERE asked = {quoted(asked)}")
    if not rows or rows[0][-1] != state(lake) or holder_of(lake.metadata) or not lake.checksums.are_unchanged():
        return None
    _, inputs, dataset, version, notes, _ = rows[0]
    return Finished(asked, inputs, dataset, version, tuple(json.loads(notes)))


def state(lake: Lake) -> str:
    """Return the number of the last snapshot that changed more than tables that are only told from; of the newest one
    where none is left that did (`sweep` lets go of old ones): equal states are the same rows in every other table."""
    told = {
        n for name, n in lake.metadata.read("SELECT table_name, table_id FROM ducklake_table") if name in _TOLD_ONLY
    }
    harmless = {f"{change}:{n}" for change in _ROWS for n in told}
    sql = "SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC"
    changes = lake.metadata.read(sql)
    for snapshot, made in changes:
        if not set((made or "").split(",")) <= harmless:
            return str(snapshot)
    return f"{changes[0][0]} or before" if changes else ""
