"""Find pairs of rows that are near each other in sort order and have similar sketches."""

from __future__ import annotations

import numpy as np


def near_in_order(
    runs: np.ndarray, sketches: np.ndarray, is_new: np.ndarray, window: int, furthest: int, known: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of rows of one run, within ``window`` positions and ``furthest`` bits, at least one of them new.

    ``runs`` is (n,) of any type, with equal values adjacent; ``sketches`` is (n,) uint64; ``is_new`` is (n,) bool.
    Returns (left, right), int64 positions with left < right. No pair is reported among the first ``known`` rows, which
    repeat the end of the previous block. The work is at most ``window`` times the number of rows that share a run.
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
