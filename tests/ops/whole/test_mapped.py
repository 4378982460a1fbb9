"""A pass over a mapped file returns its rows and holds few of them."""

from pathlib import Path

import numpy as np
import psutil
import pytest

from pairmill.ops.whole.mapped import blocks, pick_rows

N, D = 40_000, 512  # 41 MB


@pytest.fixture
def mapped(tmp_path: Path) -> np.memmap:
    made = np.random.default_rng(0).integers(0, 1000, (N, D)).astype("<f2")
    (tmp_path / "rows.bin").write_bytes(b"head" + made.tobytes())
    return np.memmap(tmp_path / "rows.bin", "<f2", "r", offset=4, shape=(N, D))


def resident() -> int:
    """Return the resident MB of mapped files."""
    return psutil.Process().memory_info().shared // 1_000_000


def test_blocks_hold_every_row_in_order_but_never_the_whole_file(mapped: np.memmap):
    before, most, sums = resident(), 0, []
    for block in blocks(mapped, 1000):
        sums.append(int(block[:, 0].astype(int).sum()))
        most = max(most, resident() - before)
    assert most < 10
    assert sums == [int(mapped[at : at + 1000, 0].astype(int).sum()) for at in range(0, N, 1000)]


def test_picked_rows_equal_those_of_the_array_and_leave_nothing_resident(mapped: np.memmap):
    rows, before = np.arange(3, N, 7), resident()
    found = pick_rows(mapped, rows)
    assert resident() - before < 5
    assert (found == mapped[rows]).all() and (pick_rows(np.array(mapped), rows) == found).all()
