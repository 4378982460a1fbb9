"""Convert between work items, Parquet rows and columns of ops: vectors, rounded scores, quarantine rows, portions."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.lake.arrow import TYPES
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.error import Damaged, PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.ops.batch import Batch
from pairmill.ops.fault import Fault

OWN = Score.__dataclass_fields__["package"].default


def read_rows(item: WorkItem, columns: list[str], key: str) -> pa.Table:
    """Read ``columns`` of the item's files, in the order of ``item.keys``; ``key`` is the column of the keys.

    Of a key with several rows, the row of the newest commit is read: the others are deleted, but still in the files. A
    key without a row is left out.
    """
    table = pa.concat_tables([read_table(path, [*columns, "commit"]) for path in dict.fromkeys(item.paths)])
    names = table[key].to_pylist()
    place = {names[n]: n for n in np.argsort(table["commit"].to_numpy(), kind="stable").tolist()}
    return table.take(pa.array([place[name] for name in item.keys if name in place], pa.int64())).select(columns)


def read_table(path: str, columns: list[str], filters: list | None = None) -> pa.Table:
    """Read columns of one Parquet file, local or s3; ``filters`` as in pyarrow.

    Raises Damaged when the file is gone or damaged: each page is verified by its checksum.
    """
    with open_parquet(path) as file:
        return pq.read_table(file, columns=columns, filters=filters, page_checksum_verification=True)


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Open one of the lake's Parquet files, local or s3. Raises Damaged if the ``with`` block cannot read it."""
    import fsspec  # 0.1 CPU s: a run without work opens no file

    try:
        filesystem, local = fsspec.core.url_to_fs(path)
        with filesystem.open(local, "rb") as file:
            yield file
    except (OSError, pa.ArrowException) as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise Damaged(
            f"{path} cannot be read: it is gone or damaged ({said}). Put it back from a copy of the lake, and run "
            "this again: what is finished is committed."
        ) from error


def to_vectors(blobs: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Convert BLOBs of little-endian fp16, all of one length, to float32 (n, d). Raises ValueError for nulls."""
    return to_halves(blobs).astype(np.float32)


def to_halves(blobs: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Convert BLOBs of little-endian fp16, all of one length, to float16 (n, d); a single chunk is not copied.

    Reads Arrow's buffers directly: as Python bytes, 1M vectors of 512 dimensions would take 1 GB twice over. Raises
    ValueError for nulls.
    """
    chunks = [chunk for chunk in (blobs.chunks if isinstance(blobs, pa.ChunkedArray) else [blobs]) if len(chunk)]
    if not chunks:
        return np.empty((0, 0), np.float16)
    parts = [_halves(chunk).reshape(len(chunk), -1) for chunk in chunks]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _halves(chunk: pa.Array) -> np.ndarray:
    """Return a flat fp16 view of one chunk of BLOBs, without a copy."""
    _, _, data = chunk.buffers()
    if chunk.null_count or data is None:
        raise ValueError(f"{chunk.null_count} of {len(chunk)} vectors are null or hold nothing")
    width = "<i8" if pa.types.is_large_binary(chunk.type) else "<i4"
    offsets = np.frombuffer(chunk.buffers()[1], width)[chunk.offset : chunk.offset + len(chunk) + 1]
    return np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]].view("<f2")


def on_disk(blocks: Iterable[pa.Array], path: Path) -> np.ndarray:
    """Write blocks of fp16 BLOBs to ``path``; return them as one memory-mapped array (n, d) of fp16."""
    n = 0
    with path.open("wb") as file:
        for block in blocks:
            file.write(to_halves(block).tobytes())
            n += len(block)
    return np.memmap(path, "<f2", "r").reshape(n, -1) if n else np.empty((0, 0), "<f2")


def to_blobs(vectors: np.ndarray) -> pa.Array:
    """Convert a float array (n, d) to BLOBs of little-endian fp16, the lake's format of vectors."""
    return pa.array([row.tobytes() for row in np.ascontiguousarray(vectors, dtype="<f2")], pa.binary())


def scalars(values) -> list[float | None]:
    """Round scores to 4 decimals for the lake, so that the batch composition moves no threshold; NaN becomes None.

    An array is rounded as a whole (10 times as fast), to exactly the doubles that Python's `round` returns.
    """
    plain = values if isinstance(values, np.ndarray) else np.array([np.nan if v is None else v for v in values])
    if plain.ndim != 1 or plain.dtype.kind not in "fiub":  # big integers, decimals, values that are no numbers
        return [None if value is None or np.isnan(value) else round(float(value), 4) for value in values]
    found = _round(plain.astype(np.float64)).tolist()
    return [None if value != value else value for value in found]


def _round(values: np.ndarray) -> np.ndarray:
    """Round float64 values to 4 decimals, each to the double nearest to the nearest decimal, ties to even.

    A whole number divided by 1e4 is rounded once, so only the whole number can be wrong. That needs a product, which is
    off by at most half a unit in its last place, that is this close to a tie or too large to have a fraction. Those
    values go through Python's `round`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * 1e4
        whole = np.rint(scaled)
        sure = np.abs(np.abs(scaled - whole) - 0.5) > np.abs(scaled) * 2.0**-52
        sure &= np.abs(scaled) < 2.0**50
    found = whole / 1e4
    for at in np.flatnonzero(~sure & ~np.isnan(values)).tolist():
        found[at] = round(float(values[at]), 4)
    return found


def quarantine(step: str, faults: list[Fault], sources: Mapping[str, str] = MappingProxyType({})) -> pa.Table:
    """Build the rows of the ``quarantine`` table for the faults of a step; ``sources`` has the source of an item."""
    items = [fault.item for fault in faults]
    columns = {
        "item": items,
        "source": [sources.get(item, "") for item in items],
        "stage": [step] * len(items),
        "reason": [fault.reason for fault in faults],
        "detail": [fault.detail for fault in faults],
        "payload_ref": items,
    }
    return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})


def cut_portions(sizes: np.ndarray, most: int, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut ``sizes`` into runs of at most ``most`` items and ``most_bytes`` (a larger item alone), as (first, end)."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = ends[first - 1] if first else 0
        full = int(np.searchsorted(ends, before + most_bytes, side="right"))
        end = max(first + 1, min(full, first + most, len(sizes)))
        yield first, end
        first = end


def check_columns(score: Score, batch: Batch) -> dict[str, list]:
    """Validate the columns that a score's op returned; return them by name, in their stored form.

    Raises PairmillError when the op lacks a column, returns another number of rows, or returns values that do not fit
    the column's type.
    """
    if not isinstance(batch, Mapping):
        raise _unfit(score, f"its op returns a {type(batch).__name__}, no columns by name")
    rows = {len(batch[name]) for name in score.reads if name in batch}
    found = {}
    for column in score.columns:
        if {_length(batch.get(column.op_name))} != rows:
            raise _unfit(score, f"its op adds no column '{column.name}' of a value a row")
        try:
            found[column.name] = _convert(column.type, batch[column.op_name])
            if score.package != OWN:  # our own ops are covered by tests; values of other packages are checked here
                pa.array(found[column.name], TYPES[column.type])
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            said = " ".join(str(error).split())[:200]
            raise _unfit(score, f"the values of column '{column.name}' are no {column.type} ({said})") from error
    return found


def _length(values: Any) -> int:
    """Return the number of values, -1 for a value without a length."""
    try:
        return len(values)
    except TypeError:
        return -1


def _unfit(score: Score, why: str) -> PairmillError:
    """Return the error that an op's output does not match its declaration."""
    return PairmillError(f"package '{score.package}', score '{score.name}': {why}. Update or uninstall the package.")


def score_rows(score: Score, keys: list[str], values: dict[str, list]) -> pa.Table:
    """Build rows of a score's table: its key column, and its columns from ``values``, NULL for absent columns."""
    columns = {column.name: pa.array(values.get(column.name, [None] * len(keys)), TYPES[column.type])
               for column in score.columns}  # fmt: skip
    return pa.table({score.key: pa.array(keys, pa.string()), **columns})


def _convert(kind: str, values) -> list:
    """Convert values to their stored form: fp16 BLOBs, doubles of 4 decimals, printable text."""
    if kind == "BLOB":
        return to_blobs(np.asarray(values)).to_pylist()
    if kind == "DOUBLE":
        return scalars(values)
    found = values.tolist() if isinstance(values, np.ndarray) else list(values)
    return [printable(value) if isinstance(value, str) else value for value in found] if kind == "VARCHAR" else found
