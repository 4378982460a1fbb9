"""Order the pairs of one epoch for training: shuffled, divided among ranks and workers, and resumable anywhere.

Pairs are numbered in the order of their shards, because a shard's images are read together. Blocks of BLOCK neighbours
are shuffled over the whole dataset; then each consumer (a worker of a rank) shuffles windows of WINDOW pairs. So a pair
may come at any time of the epoch, its neighbours at one time, as in tars that are read through a shuffle buffer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BLOCK = 256
WINDOW = 2048  # pairs in memory of one worker: 200 MB at 100 KB an image


@dataclass(frozen=True)
class Consumer:
    """One of ``workers`` workers of rank number ``rank`` of ``ranks``."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


def per_rank(n: int, ranks: int) -> int:
    """Return the pairs of each rank in an epoch: equal, or ranks would wait for each other at its end.

    Up to ``ranks`` - 1 of ``n`` pairs are left out, other ones in each epoch. With one rank none is.
    """
    return n // ranks


def windows(n: int, seed: int, epoch: int, consumer: Consumer, done: int = 0) -> Iterator[list[np.ndarray]]:
    """Yield the consumer's windows of an epoch, each as spans in the order of reading and the order of use.

    Args:
        n: Number of pairs of the dataset.
        seed: The shuffle's seed.
        epoch: Number of the epoch.
        consumer: Whose windows.
        done: Number of pairs that the consumer used before, to go on behind them.

    Yields:
        [spans, order]: ``spans`` (m, 2), int64, first and last + 1 of each run of pairs to read; ``order`` (k,), int64,
        indices into what the spans hold, one after another.
    """
    firsts, sizes = _blocks(n, seed, epoch)
    ends = np.cumsum(sizes)
    first, last = _range_of(n, consumer)
    for number, start in enumerate(range(first, last, WINDOW)):
        stop = min(start + WINDOW, last)
        order = np.random.default_rng((seed, epoch, first, number)).permutation(stop - start)
        skipped = min(max(done - number * WINDOW, 0), stop - start)
        if skipped < stop - start:
            yield [_spans(firsts, sizes, ends, start, stop), order[skipped:]]


def _blocks(n: int, seed: int, epoch: int) -> tuple[np.ndarray, np.ndarray]:
    """Return first pair and size of each block, in the epoch's order: int64, 16 bytes a block."""
    firsts = np.arange(0, n, BLOCK)
    sizes = np.minimum(firsts + BLOCK, n) - firsts
    order = np.random.default_rng((seed, epoch)).permutation(len(firsts))
    return firsts[order], sizes[order]


def _range_of(n: int, consumer: Consumer) -> tuple[int, int]:
    """Return the consumer's range of positions in the epoch's order."""
    mine = per_rank(n, consumer.ranks)
    first = consumer.rank * mine
    bounds = [first + mine * each // consumer.workers for each in (consumer.worker, consumer.worker + 1)]
    return bounds[0], bounds[1]


def _spans(firsts: np.ndarray, sizes: np.ndarray, ends: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return the runs of pairs at the positions ``start`` to ``stop`` - 1 of the epoch's order."""
    found = []
    block = int(np.searchsorted(ends, start, side="right"))
    while start < stop:
        offset = start - int(ends[block] - sizes[block])
        taken = min(stop - start, int(sizes[block]) - offset)
        first = int(firsts[block]) + offset
        found.append((first, first + taken))
        start, block = start + taken, block + 1
    return np.array(found, np.int64).reshape(-1, 2)
