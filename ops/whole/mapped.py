"""Read a memory-mapped array without keeping its pages in resident memory."""

import mmap
from collections.abc import Iterator

import numpy as np

SCATTERED = 500  # rows read from all over a file before their pages are given back: 32 MB


def blocks(array: np.ndarray, rows: int) -> Iterator[np.ndarray]:
    """Yield an array in blocks of ``rows`` rows; each block is released when the next one is requested."""
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
        release(array)


def release(array: np.ndarray) -> None:
    """Release the resident pages of a memory-mapped array; later reads take them from the system's file cache.

    Else a pass over a million vectors leaves this process with 1 GB of resident memory. Others stay.
    """
    if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        array.base.madvise(mmap.MADV_DONTNEED)


def pick_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return a copy of the rows ``rows`` (ascending indices) of an array, releasing its pages meanwhile.

    The system maps the 64 kB around each page that is read: 5,000 scattered rows would make most of 1 GB resident.
    """
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for start in range(0, len(rows), SCATTERED):
        found[start : start + SCATTERED] = array[rows[start : start + SCATTERED]]
        release(array)
    return found
