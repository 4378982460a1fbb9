"""Find the batch size at which a model is fastest on its device, once, and remember it."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# A step up that wins less than a twentieth is the last; beyond this no card of today wins anything.
LEAST_GAIN, MOST = 1.05, 4096
_IN_THIS_PROCESS: dict[tuple[str, ...], int] = {}


def fastest(seconds_of: Callable[[int], float], first: int, is_full: Callable[[Exception], bool]) -> int:
    """Double the batch size from ``first`` until the rate stops growing or memory runs out; return the best.

    ``seconds_of(n)`` runs a batch of n rows and returns what it took. ``is_full`` tells memory that ran out from other
    errors, which are raised. ``first`` stands where even it is full.
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

    The first call runs batches, so it is made where nothing else uses the device: when the model is loaded. Without a
    GPU it is ``first``, and nothing is run: equal batches make equal values there.
    """
    import torch

    if not torch.cuda.is_available():
        return first
    share = f"{torch.cuda.get_per_process_memory_fraction():.2f}"
    key = (spec, shape, torch.cuda.get_device_name(), share)

    def find() -> int:
        full = torch.cuda.OutOfMemoryError
        return fastest(lambda rows: _second_time(run, rows), first, lambda error: isinstance(error, full))

    if key not in _IN_THIS_PROCESS:
        _IN_THIS_PROCESS[key] = remembered(key, find)
    return _IN_THIS_PROCESS[key]


def _second_time(run: Callable[[int], None], rows: int) -> float:
    """Return the seconds of a batch, whose first one of its size compiles."""
    run(rows)
    started = time.perf_counter()
    run(rows)
    return time.perf_counter() - started


def remembered(key: tuple[str, ...], find: Callable[[], int]) -> int:
    """Return the batch size known for ``key`` (model, precision, device, side, share …), else find it and remember it.

    Of processes that share a device one looks for it at a time; the others wait, then know. A file that cannot be read
    counts as nothing known, a folder that cannot be written is left.
    """
    name = " ".join(key)
    file = _folder() / "batch_sizes.json"
    if found := _known(file).get(name):
        return found
    with _alone(file.with_suffix(".lock")):
        if found := _known(file).get(name):
            return found
        found = find()
        _write(file, {**_known(file), name: found})
    return found


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairmill"


def _known(file: Path) -> dict[str, int]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {name: size for name, size in entries if isinstance(size, int) and 0 < size <= MOST}


def _write(file: Path, known: dict[str, int]) -> None:
    new = file.with_suffix(f".{os.getpid()}")
    try:
        new.write_text(json.dumps(known, indent=1), encoding="utf-8")
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold the lock file while this process measures."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError:
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
