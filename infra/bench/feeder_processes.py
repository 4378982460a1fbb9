"""Run feeders as processes, to compare them with the engine's threads: bytes go in by a pipe, arrays return shared.

This is the best case for processes: each has two batches in flight, so that it never waits, and the caller uses an
output batch in shared memory, without a copy, until it sends the process its next batch.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import torch

# A batch of 16 pictures of 336 pixels as bytes is 5 MB.
SLOT, SLOTS = 32_000_000, 2
# Name of an array to its offset in the slot in bytes, its dtype and its shape.
Layout = dict[str, tuple[int, str, tuple[int, ...]]]


class FeederProcesses:
    """Run ``n`` spawned processes; each calls ``make`` for its own ``prepare`` function (bytes -> tensors by name)."""

    def __init__(self, make: Callable[[], Callable[[list[bytes]], dict[str, torch.Tensor]]], n: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._memory = [SharedMemory(create=True, size=SLOT * SLOTS) for _ in range(n)]
        self._pipes: dict[Connection, SharedMemory] = {}
        self._processes = []
        for memory in self._memory:
            here, there = context.Pipe()
            self._processes.append(context.Process(target=_feed, args=(there, memory.name, make), daemon=True))
            self._processes[-1].start()
            self._pipes[here] = memory
        for pipe in self._pipes:
            pipe.recv()  # the process has loaded its model

    def run(self, pieces: Iterator[list[bytes]], take: Callable[[dict[str, torch.Tensor]], None]) -> float:
        """Prepare all ``pieces``, and call ``take`` with each batch, whose memory is reused after ``take`` returns.

        Returns:
            Seconds that a process waited for a core meanwhile, mean over processes.
        """
        before = self._waited()
        waiting = dict.fromkeys(self._pipes, 0)
        for pipe in [*self._pipes] * SLOTS:
            waiting[pipe] += _send(pipe, next(pieces, None))
        while any(waiting.values()):
            for pipe in wait([each for each, n in waiting.items() if n]):
                assert isinstance(pipe, Connection)
                take(_tensors(self._pipes[pipe], pipe.recv()))
                waiting[pipe] += _send(pipe, next(pieces, None)) - 1
        return self._waited() - before

    def _waited(self) -> float:
        """Return the seconds that a process has waited for a core so far, mean over processes."""
        return sum(waited(each.pid, each.pid) for each in self._processes if each.pid) / len(self._processes)

    def close(self) -> None:
        """End the processes and free their shared memory."""
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()
        for memory in self._memory:
            memory.close()
            memory.unlink()


def waited(process: int, thread: int) -> float:
    """Return the seconds in which a thread was ready to run while other threads of this machine used the cores."""
    return int(Path(f"/proc/{process}/task/{thread}/schedstat").read_text().split()[1]) / 1e9


def _send(pipe: Connection, piece: list[bytes] | None) -> int:
    """Send a piece to a process; return 1, or 0 if there is no piece."""
    if piece is None:
        return 0
    pipe.send(piece)
    return 1


def _feed(pipe: Connection, name: str, make: Callable[[], Callable[[list[bytes]], dict[str, torch.Tensor]]]) -> None:
    """Prepare each received piece, into alternating slots of the shared memory. The body of a process."""
    torch.set_num_threads(1)
    memory, prepare, slot = SharedMemory(name), make(), 0
    pipe.send("ready")
    while (piece := pipe.recv()) is not None:
        pipe.send(_written(prepare(piece), memory, slot * SLOT))
        slot = (slot + 1) % SLOTS
    memory.close()


def _written(tensors: dict[str, torch.Tensor], memory: SharedMemory, start: int) -> Layout:
    """Copy tensors into shared memory from byte ``start`` on, aligned to 64 bytes; return their layout."""
    layout: Layout = {}
    for name, tensor in tensors.items():
        array = tensor.numpy()
        there: Any = np.ndarray(array.shape, array.dtype, memory.buf, start)
        there[...] = array
        layout[name] = (start, array.dtype.str, array.shape)
        start += -(-array.nbytes // 64) * 64
    return layout


def _tensors(memory: SharedMemory, layout: Layout) -> dict[str, torch.Tensor]:
    """Return the tensors of a layout as views of the shared memory."""
    return {
        name: torch.from_numpy(np.ndarray(shape, kind, memory.buf, start))
        for name, (start, kind, shape) in layout.items()
    }
