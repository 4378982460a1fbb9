"""Find the batch size at which a model is fastest on its device, once, and cache it in a file."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from pairmill.catalog.terms.whole_file import cache_on_machine
from pairmill.ops.models.device.failures import is_no_room

# Stop doubling when a step gains less than 5 %. Above 4,096 rows no current card gains anything.
LEAST_GAIN, MOST = 1.05, 4096
_IN_THIS_PROCESS: dict[tuple[str, ...], int] = {}


def fastest(seconds_of: Callable[[int], float], first: int, is_full: Callable[[Exception], bool]) -> int:
    """Return the fastest batch size: double it from ``first`` until the rate stops growing or memory runs out.

    ``seconds_of`` runs a batch of n rows. ``is_full`` tells whether an error means that memory ran out; others are
    raised. Returns ``first`` if even that size runs out of memory.
    """
    best, rate, size = first, 0.0, first
    while size <= MOST:
        try:
            now = size / seconds_of(size)
        except Exception as error:
            if not is_full(error):
                raise
            return best
        if now < LEAST_GAIN * rate:
            return best
        best, rate, size = size, now, 2 * size
    return best


def measured_batch_size(spec: str, shape: str, first: int, run: Callable[[int], None]) -> int:
    """Return the batch size at which ``run`` is fastest on this process's GPU, for a model and rows of this ``shape``.

    The first call runs batches, so call it while nothing else uses the device: when the model is loaded. Without a GPU,
    return ``first`` and run nothing: on a CPU, results repeat exactly only if batches are equal.
    """
    import torch

    if not torch.cuda.is_available():
        return first
    key = _key(spec, shape)

    def find() -> int:
        return fastest(lambda rows: _second_time(run, rows), first, is_no_room)

    if key not in _IN_THIS_PROCESS:
        _IN_THIS_PROCESS[key] = cache_on_machine("batch_sizes.json", key, find, _is_size)
    return _IN_THIS_PROCESS[key]


def known_batch_size(spec: str, shape: str, first: int) -> int:
    """Return the batch size that `measured_batch_size` found in this process, else ``first``; run nothing."""
    return _IN_THIS_PROCESS.get(_key(spec, shape), first) if _IN_THIS_PROCESS else first


def _key(spec: str, shape: str) -> tuple[str, ...]:
    """Return the key of a measured batch size: the card and this process's share of it are part of it."""
    import torch

    return (spec, shape, torch.cuda.get_device_name(), f"{torch.cuda.get_per_process_memory_fraction():.2f}")


def _second_time(run: Callable[[int], None], rows: int) -> float:
    """Return the seconds of the second batch of this size. The first one includes compilation."""
    run(rows)
    started = time.perf_counter()
    run(rows)
    return time.perf_counter() - started


def noise(height: int, width: int) -> np.ndarray:
    """Return a picture (height, width, 3) uint8 of noise, the same at each call.

    Black pictures end a trained model's answer after a few words, and zeros run 13 % faster through a GPU.
    """
    return np.random.default_rng(height * 100_003 + width).integers(0, 256, (height, width, 3), np.uint8)


def _is_size(value: Any) -> bool:
    """Return whether a cached value is a batch size."""
    return isinstance(value, int) and 0 < value <= MOST
