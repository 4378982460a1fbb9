"""Serve the pairs of a dataset version to a training loop in torch."""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.pair import Pair
from pairmill.tasks.release.export.pictures import reading_pairs


class TrainingPairs(IterableDataset[dict[str, Any]]):
    """Pairs of one version, shuffled by (seed, epoch): dictionaries of ``image_id``, ``image`` and ``text``.

    Ranks and workers get different pairs; together they get each pair once an epoch, but for at most ranks - 1 that are
    left out so that all ranks get equally many. Ranks come from torch.distributed, else from RANK and WORLD_SIZE.
    The order depends on the seed, the epoch, and the numbers of ranks and workers alone. See `windows`
    for how thoroughly it shuffles, and `reading_pairs` for the dataset size from which to train on an export instead.

    To resume within an epoch without workers, store `state_dict` and pass it to `load_state_dict` of an equal dataset.
    With workers each worker has a state of its own: torchdata's StatefulDataLoader stores and restores all of them.
    """

    def __init__(
        self, lake: str, version: Dataset, text: str | Sequence[str], seed: int, transform: Callable[[Any], Any] | None
    ) -> None:
        super().__init__()
        self._lake, self._version, self._seed, self._transform = lake, version, seed, transform
        released = (*text_columns.texts(version.n_texts), "syn_text")
        self._texts = released if text == "random" else (text,) if isinstance(text, str) else tuple(text)
        known = text_columns.of_every_kind(version.n_texts)
        if unknown := sorted({*self._texts} - {*known}):
            raise PairmillError(f"pairs have no text '{unknown[0]}'; name of {', '.join(known)}, or 'random'.")
        # In shared memory, so that workers that live for several epochs see a new one.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._done, self._resumed = 0, False

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the epoch, which decides the order; call it before each epoch."""
        self._epoch.fill_(epoch)
        self._done, self._resumed = 0, False

    def __len__(self) -> int:
        """Return the number of pairs of this rank in an epoch."""
        return self._version.n_pairs // _rank_and_ranks()[1]

    def state_dict(self) -> dict[str, int]:
        """Return ``epoch``, and ``done``: the number of its pairs that this consumer has served."""
        return {"epoch": int(self._epoch), "done": self._done}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume: the next iteration skips the pairs that ``state``, of `state_dict`, counts as served."""
        self._epoch.fill_(state["epoch"])
        self._done, self._resumed = state["done"], True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = get_worker_info()
        consumer = (*_rank_and_ranks(), *((worker.id, worker.num_workers) if worker else (0, 1)))
        self._done, self._resumed = (self._done if self._resumed else 0), False
        epoch = int(self._epoch)
        with reading_pairs(self._lake, self._version) as reader:  # opened here: a connection does not survive a fork
            for spans, order in windows(reader.size, self._seed, epoch, *consumer, self._done):
                read = [pair for first, last in spans.tolist() for pair in reader.read(first, last)]
                for place in order.tolist():
                    self._done += 1
                    yield self._sample(Pair(*read[place]), epoch)
        self._done = 0

    def _sample(self, pair: Pair, epoch: int) -> dict[str, Any]:
        """Decode the image and draw the text; a pair with none of the asked texts gives its best sentence."""
        image = pair.image if self._transform is None else self._transform(pair.image)
        has = [pair.columns[name] for name in self._texts if pair.columns[name]] or [pair.columns["text1"] or ""]
        drawn = np.random.default_rng((self._seed, epoch, int(pair.columns["sha256"][:15], 16)))
        text = has[drawn.integers(len(has))]
        return {"image_id": pair.image_id, "image": image, "text": text}


def _rank_and_ranks() -> tuple[int, int]:
    """Return (rank of this process, number of ranks)."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


BLOCK = 256
WINDOW = 2048  # pairs in memory of one worker: 200 MB at 100 KB an image


def windows(
    n: int, seed: int, epoch: int, rank: int = 0, ranks: int = 1, worker: int = 0, workers: int = 1, done: int = 0
) -> Iterator[list[np.ndarray]]:
    """Yield the windows of one ``worker`` of a ``rank`` in an epoch: the pairs to read, and the order of their use.

    Pairs are numbered in the order of their shards, because a shard's images are read together. Blocks of BLOCK
    neighbours are shuffled over the whole dataset; then each worker shuffles windows of WINDOW pairs. So a pair may
    come at any time of the epoch, but neighbours come close together, as in tars read through a shuffle buffer. Each
    rank has n // ranks pairs, so that none waits at its end: up to ranks - 1 are left out, others in each epoch.

    ``n``: pairs of the dataset. ``rank`` of ``ranks`` is the training process, ``worker`` of the rank's ``workers`` its
    data-loading worker, which has used ``done`` pairs already; they are skipped. Yields [spans, order]: ``spans``
    (m, 2), int64, first and last + 1 of each run of pairs to read; ``order`` (k,), int64, indices into the pairs of all
    spans, one span after another.
    """
    mine = n // ranks
    first, last = (rank * mine + mine * each // workers for each in (worker, worker + 1))
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
