"""Find pairs of rows that stand near each other in an order by key and whose sketches are near."""

from __future__ import annotations

import numpy as np


def near_in_order(
    runs: np.ndarray, sketches: np.ndarray, is_new: np.ndarray, window: int, furthest: int, known: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of one run, at most ``window`` places apart, at most ``furthest`` bits apart, with a new end.

    ``runs`` (n,) of any type with equal values side by side; ``sketches`` (n,) uint64; ``is_new`` (n,) bool. Returns
    (left, right), int64 places, left < right. Of the first ``known`` rows, the end of a block before, no pair is
    reported among themselves. No more work than window x the rows that share a run.
    """
    left, right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    places = np.arange(max(0, len(runs) - 1))
    for step in range(1, window + 1):
        places = places[places + step < len(runs)]
        places = places[runs[places] == runs[places + step]]
        if not len(places):
            break
        near = np.bitwise_count(sketches[places] ^ sketches[places + step]) <= furthest
        near &= (is_new[places] | is_new[places + step]) & (places + step >= known)
        left.append(places[near])
        right.append(places[near] + step)
    return np.concatenate(left), np.concatenate(right)
