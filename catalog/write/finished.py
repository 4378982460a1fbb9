"""Cache completed runs by request, so that a repeated run of an unchanged lake returns at once.

A row has a run's request, inputs and result, and the state of the lake. The cache is a table of the metadata database,
like the lease: outside DuckLake's snapshots, on SQLite and Postgres alike, and part of every copy of the catalog. Its
rows may be deleted at any time, which costs one run.
"""

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pairmill.catalog.lake.connection import connect, extensions_for
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import holder_of
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import locate
from pairmill.catalog.lake.metadata import FINISHED, FINISHED_TABLE, Metadata
from pairmill.catalog.write.rewritten import SAME_ROWS

if TYPE_CHECKING:
    from pairmill.catalog.write.lease import Writer  # imports Arrow, 0.1 CPU s, which a lookup does not need

KEPT = 100
# Tables that no work list and no cut reads: records of what was done, and people's judgements. A run that finds no work
# writes into two of them.
_TOLD_ONLY = ("runs", "run_recipes", "exports", "judgement_samples", "judgements")
# Changes by which rows are stored elsewhere and stay the same.
_SAME_ROWS = ("merge_adjacent", "inline_flush")
_ROWS = ("inlined_insert", "inlined_delete", "inserted_into_table", "deleted_from_table")


@dataclass(frozen=True)
class Finished:
    """A completed run: digests of its ``request`` and of its ``inputs`` outside the lake, its version, its notes."""

    request: str
    inputs: str
    dataset: str
    version: int
    notes: tuple[str, ...] = ()
    run_id: str = ""  # of a loaded row: the run that saved it


def save(writer: "Writer", *finished: Finished) -> None:
    """Cache completed runs, one row per request, with the lake's current state; the newest KEPT requests stay.

    Call this last, under the lease. Raises LeaseLost, and Damaged for a file of the lake, which a cache would hide.
    """
    import pyarrow as pa

    # in a copied lake, the files of tables that the run did not read have no recorded stamp yet
    for table in sorted(writer.lake.tables):
        writer.lake.check_files(table)
    metadata, now = writer.lake.metadata, datetime.now(UTC).isoformat()
    found = state(writer.lake)
    names = ("request", "inputs", "state", "dataset", "version", "notes", "run_id", "finished")
    rows = [
        (each.request, each.inputs, found, each.dataset, each.version, json.dumps(each.notes), writer.run_id, now)
        for each in finished
    ]
    writer.check()  # after reading the state: changes by a later lease holder lead to another state
    if not metadata.has(FINISHED):
        metadata.write(FINISHED_TABLE)
    metadata.replace(FINISHED, "request", pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows]))
    if metadata.read(f"SELECT count(*) FROM {FINISHED}")[0][0] > KEPT:
        newest = f"SELECT request FROM {FINISHED} ORDER BY finished DESC LIMIT {KEPT}"
        metadata.write(f"DELETE FROM {FINISHED} WHERE request NOT IN ({newest})")


def load(lake: Lake, request: str, has_lease: bool = False) -> Finished | None:
    """Return the completed run with the same request if the lake has not changed since, else None.

    Unchanged means: no table that a run reads has changed, every file has its recorded stamp, and nobody but a caller
    that ``has_lease`` holds the lease. A killed run still holds its lease.
    """
    if not lake.metadata.has(FINISHED):
        return None
    columns = "request, inputs, dataset, version, notes, run_id, state"
    # A literal, because DuckDB imports pandas (0.28 s) for the first statement with parameters.
    rows = lake.metadata.read(f"SELECT {columns} FROM {FINISHED} WHERE request = {quoted(request)}")
    if not rows or rows[0][-1] != state(lake) or not lake.checksums.are_unchanged():
        return None
    if not has_lease and holder_of(lake.metadata):
        return None
    _, inputs, dataset, version, notes, run_id, _ = rows[0]
    return Finished(request, inputs, dataset, version, tuple(json.loads(notes)), run_id)


def is_cached(uri: str, request: str) -> bool:
    """Return whether the lake at ``uri`` has a completed run with this request, whatever changed since.

    Reads the metadata database alone: attaching the lake takes 0.12 CPU s, which most new requests save. Raises
    PairmillError and DuckDB's errors.
    """
    location = locate(uri)
    if not location.on_postgres and not os.path.isfile(location.metadata):
        return False
    with connect(extensions_for(location)[1]) as connection:
        metadata = Metadata(connection, location, read_only=True)
        try:
            sql = f"SELECT 1 FROM {FINISHED} WHERE request = {quoted(request)}"
            return metadata.has(FINISHED) and bool(metadata.read(sql))
        finally:
            metadata.close()


def state(lake: Lake) -> str:
    """Return the lake's state as text: the number of the last snapshot that changed a table which a run reads.

    If `sweep` has expired that snapshot, return "N or before" for the newest snapshot N. Equal states mean
    equal rows in every other table.
    """
    tables = lake.metadata.read("SELECT table_name, table_id FROM ducklake_table")
    told = {n for name, n in tables if name in _TOLD_ONLY}
    harmless = {f"{change}:{n}" for change in _ROWS for n in told}
    columns = "snapshot_id, changes_made, coalesce(commit_message, '')"
    changes = lake.metadata.read(f"SELECT {columns} FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC")
    for snapshot, made, message in changes:
        parts = {part for part in (made or "").split(",") if part.partition(":")[0] not in _SAME_ROWS}
        if message != SAME_ROWS and not parts <= harmless:
            return str(snapshot)
    return f"{changes[0][0]} or before" if changes else ""
