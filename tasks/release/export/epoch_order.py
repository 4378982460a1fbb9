"""Order the pairs of one epoch for training: shuffled, divided among ranks and workers, and resumable anywhere.

Pairs are numbered in the order of their shards, because a shard's images are read together. Blocks of BLOCK neighbours
are shuffled over the whole dataset; then each consumer (a worker of a rank) shuffles windows of WINDOW pairs. So a pair
may come at any time of the epoch, but neighbours come close together, as in tars read through a shuffle buffer.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

BLOCK = 256
WINDOW = 2048  # pairs in memory of one worker: 200 MB at 100 KB an image


@dataclass(frozen=True)
class Consumer:
    """A data-loading worker: number ``worker`` of ``workers`` of the training process ``rank`` of ``ranks``."""

    rank: int = 0
    ranks: int = 1
    worker: int = 0
    workers: int = 1


def per_rank(n: int, ranks: int) -> int:
    """Return the number of pairs of each rank in an epoch, equal so that no rank waits for another at its end.

    Up to ``ranks`` - 1 of ``n`` pairs are left out, different ones in each epoch.
    """
    return n // ranks


def windows(n: int, seed: int, epoch: int, consumer: Consumer, done: int = 0) -> Iterator[list[np.ndarray]]:
    """Yield a consumer's windows of an epoch: the pairs to read, and the order in which to use them.

    Args:
        n: Number of pairs of the dataset.
        seed: The shuffle's seed.
        epoch: Number of the epoch.
        consumer: The worker whose windows to yield.
        done: Number of pairs that the consumer has used already; they are skipped.

    Yields:
        [spans, order]: ``spans`` (m, 2), int64, first and last + 1 of each run of pairs to read; ``order`` (k,), int64,
        indices into the pairs of all spans, one span after another.
    """
    mine = per_rank(n, consumer.ranks)
    bounds = (mine * each // consumer.workers for each in (consumer.worker, consumer.worker + 1))
    first, last = (consumer.rank * mine + each for each in bounds)
    blocks = np.random.default_rng((seed, epoch)).permutation(-(-n // BLOCK)) * BLOCK  # the first pair of each
    sizes = np.minimum(BLOCK, n - blocks)  # one block may be short
    begins = np.cumsum(sizes) - sizes
    for number, start in enumerate(range(first, last, WINDOW)):
        places = np.arange(start, min(start + WINDOW, last))
        order = np.random.default_rng((seed, epoch, first, number)).permutation(len(places))
        skipped = min(max(done - number * WINDOW, 0), len(places))
        if skipped < len(places):
            at = np.searchsorted(begins, places, side="right") - 1
            pairs = blocks[at] + places - begins[at]
            ends = np.flatnonzero(np.diff(pairs) != 1) + 1
            spans = [(run[0], run[-1] + 1) for run in np.split(pairs, ends)]
            yield [np.array(spans, np.int64), order[skipped:]]
