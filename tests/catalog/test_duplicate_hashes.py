"""Read the hashes of images and the colours of flat ones."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import duplicate_edges
from pairmill.tasks.relate.duplicates import names


def insert(lake: Lake, ids: list[str], colours: list[str | None]) -> None:
    n = len(ids)
    columns = {"sha256": ids, "shard": ["a"] * n, "scorer": ["k"] * n, "commit": pa.array(range(n), pa.int64())}
    lake.insert("image_hash", pa.table({**columns, "phash": pa.array(range(n), pa.uint64()), "flat_colours": colours}))


@pytest.mark.parametrize("n", [0, 1, 7])
def test_hashes_come_by_key_whatever_the_blocks(lake: Lake, monkeypatch: pytest.MonkeyPatch, n: int):
    monkeypatch.setattr(duplicate_edges, "GROUPED_AT_ONCE", 2)
    ids = [f"{n - row:032x}" for row in range(n)]
    insert(lake, ids, [bytes([row] * 12).hex() if row % 3 else None for row in range(n)])
    keys, hashes, commits, flat, colours = duplicate_edges.hashes(lake, "k")
    rows = np.arange(n)[::-1]
    assert names(keys, np.arange(n)).to_pylist() == ids[::-1]
    assert hashes.tolist() == commits.tolist() == rows.tolist() and hashes.dtype == np.uint64
    assert flat.tolist() == np.flatnonzero(rows % 3).tolist()
    assert colours.tolist() == [[row] * 12 for row in rows[rows % 3 > 0].tolist()]


def test_colours_are_read_into_one_copy(lake: Lake):
    n = 30_000
    data = np.random.default_rng(1).bytes(192 * n).hex()
    insert(lake, [f"{row:032x}" for row in range(n)], [data[384 * row : 384 * (row + 1)] for row in range(n)])
    lake.query("SELECT 1 FROM image_hash LIMIT 1")
    tracemalloc.start()
    try:
        *_, colours = duplicate_edges.hashes(lake, "k")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert colours.tobytes().hex() == data
    assert peak < 260 * n, f"{peak / n:.0f} bytes an image"
