"""Cache the scorers and notes of a completed run's measuring steps: the steps before any text is generated.

While nothing that these steps read has changed, they have no work. A run of which only a setting of the cut is new,
such as the cap, then skips them: a quarter of its CPU time in a lake of 72 documents.

The cache is a table of the metadata database, as that of `finished`. Its rows may be deleted at any time.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.metadata import MEASURED, MEASURED_TABLE
from pairmill.catalog.write.finished import has_row, state, store
from pairmill.catalog.write.lease import Writer

KEPT = 20


@dataclass(frozen=True)
class Measurement:
    """What the measuring steps of a completed run left.

    Attributes:
        asked: Digest of the part of the request that these steps read.
        inputs: Digest of the inputs read besides the lake.
        scorers: The digest of the scorer by each table that the run read or filled.
        notes: Their notes, which are valid until something changes.
    """

    asked: str
    inputs: str
    scorers: Mapping[str, str]
    notes: tuple[str, ...] = ()


def remember_measured(writer: Writer, measured: Measurement) -> None:
    """Cache what was measured with the state of the lake; replace an equal request. Call it last, under the lease.

    Raises LeaseLost if another process took the lease over.
    """
    metadata = writer.lake.metadata
    row = {
        "asked": measured.asked,
        "inputs": measured.inputs,
        "state": state(writer.lake),
        "scorers": json.dumps(dict(measured.scorers)),
        "notes": json.dumps(measured.notes),
        "finished": datetime.now(UTC).isoformat(),
    }
    writer.check()  # after reading the state: changes by a later lease holder lead to another state
    store(metadata, MEASURED, MEASURED_TABLE, pa.Table.from_pylist([row]), KEPT)


def was_measured(uri: str, asked: str, inputs: str) -> bool:
    """Return whether any completed run over the lake at ``uri`` had this request and these inputs.

    The lake may have changed since: only `recall_measured` tells whether the measuring steps may be skipped.

    Raises PairmillError and DuckDB's errors.
    """
    return has_row(uri, MEASURED, f"asked = {quoted(asked)} AND inputs = {quoted(inputs)}")


def recall_measured(lake: Lake, asked: str, inputs: str) -> Measurement | None:
    """Return the measurement of the last run with this request and these inputs; None if the lake has changed since.

    Under the lease the answer stays true until the caller writes itself. Unchanged means: no table that a run reads has
    changed, every file has its recorded stamp, and each scorer is registered.
    """
    if not lake.metadata.has(MEASURED):
        return None
    columns = "inputs, state, scorers, notes"
    rows = lake.metadata.read(f"SELECT {columns} FROM {MEASURED} WHERE asked = {quoted(asked)}")
    if not rows or rows[0][:2] != (inputs, state(lake)) or not lake.checksums.are_unchanged():
        return None
    scorers: dict[str, str] = json.loads(rows[0][2])
    digests = {digest for digest in scorers.values() if digest}
    among = ", ".join(map(quoted, sorted(digests)))
    if lake.query(f"SELECT count(DISTINCT digest) FROM scorers WHERE digest IN ({among})")[0][0] != len(digests):
        return None
    return Measurement(asked, inputs, scorers, tuple(json.loads(rows[0][3])))
