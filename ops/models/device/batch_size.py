"""Find the batch size at which a model is fastest on its device, once, and cache it in a file."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pairmill.ops.models.device.failures import is_no_room

# Stop doubling when a step gains less than 5 %. Above 4,096 rows no current card gains anything.
LEAST_GAIN, MOST = 1.05, 4096
_IN_THIS_PROCESS: dict[tuple[str, ...], int] = {}


def fastest(seconds_of: Callable[[int], float], first: int, is_full: Callable[[Exception], bool]) -> int:
    """Double the batch size from ``first`` until the rate stops growing or memory runs out; return the fastest size.

    Returns ``first`` if even that size runs out of memory.

    Args:
        seconds_of: Run a batch of n rows and return its seconds.
        first: The smallest size to try.
        is_full: Return whether an error means that memory ran out. Other errors are raised.
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
    share = f"{torch.cuda.get_per_process_memory_fraction():.2f}"
    key = (spec, shape, torch.cuda.get_device_name(), share)

    def find() -> int:
        return fastest(lambda rows: _second_time(run, rows), first, is_no_room)

    if key not in _IN_THIS_PROCESS:
        _IN_THIS_PROCESS[key] = remembered(key, find)
    return _IN_THIS_PROCESS[key]


def _second_time(run: Callable[[int], None], rows: int) -> float:
    """Return the seconds of the second batch of this size. The first one includes compilation."""
    run(rows)
    started = time.perf_counter()
    run(rows)
    return time.perf_counter() - started


def remembered(key: tuple[str, ...], find: Callable[[], int]) -> int:
    """Return the cached batch size for ``key``; if there is none, call ``find`` and cache its result.

    ``key`` holds model, precision, device, side, share …. Among processes on one machine only one measures at a time;
    the others wait for a file lock and then read its result. An unreadable cache file counts as empty. A folder that
    cannot be written is ignored.
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
    """Return the cache folder: ``pairmill`` in XDG_CACHE_HOME, else in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairmill"


def _known(file: Path) -> dict[str, int]:
    """Read the valid entries of the cache file; {} if the file is missing or damaged."""
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {name: size for name, size in entries if isinstance(size, int) and 0 < size <= MOST}


def _write(file: Path, known: dict[str, int]) -> None:
    """Replace the cache file atomically; ignore a folder that cannot be written."""
    new = file.with_suffix(f".{os.getpid()}")
    try:
        new.write_text(json.dumps(known, indent=1), encoding="utf-8")
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Hold an exclusive file lock during the body; without a lock file that can be opened, run the body unlocked."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        held = lock.open("w")
    except OSError:
        yield
        return
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
