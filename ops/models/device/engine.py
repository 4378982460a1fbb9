"""Keep a device busy: threads prepare batches ahead, and one thread alone talks to the device.

A model is fed from bytes: decoding and resizing take a CPU longer than a device takes for the rest, so that a process
that does one after the other leaves its card idle most of the time. Decoders, resizing and copies let go of Python's
lock, so threads do; processes would hand every batch over once more.

Measured beside processes (infra/bench/feeders.py) while the device's thread runs `generate` of transformers without a
pause, and so Python: two of either prepare as many pictures for a captioner (threads 183 and 146 a second in two runs,
processes 131 and 152), and a card is to have 25 for a model of 17B, 58 for one of 7B. Threads take the lock from that
thread: it keeps 0.80 and 0.62 of its rate beside two that never rest, beside processes 0.88. They rest when they are
ahead, six sevenths of the time at 25 pictures a second: it loses 3 to 7 % (processes 2), at 58 it would lose 6 to 15 %
(5). That is the plain loop; captured decoding waits for the card without the lock, and wakes up to 0.4 ms later for the
feeders, under 1 % of the 8 steps between two looks. So threads, until a card runs the plain loop at such rates.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol


class EngineStages(Protocol):
    """What an engine runs. ``prepare`` is called by feeders, several at once; ``infer`` and ``fetch`` by the one thread
    that talks to the device, ``fetch`` of a batch after ``infer`` of the next one: while it waits, the device works."""

    def prepare(self, piece: Any, /) -> Any: ...
    def infer(self, ready: Any, /) -> Any: ...
    def fetch(self, running: Any, /) -> Any: ...


class BrokenDevice(Exception):
    """A device that no call works on any more in this process: the context is lost, only a new process has another."""


class Engine:
    """Run the pieces of several callers through one model, each piece by itself: no batch has rows of two callers.

    ``feeders`` threads prepare, with at most twice as many pieces and two between the reader and the device; 0 does one
    piece after the other in the caller's own thread, as a loop would.
    """

    def __init__(self, halves: EngineStages, feeders: int) -> None:
        self._halves, self._feeders = halves, feeders
        self._to_prepare: queue.SimpleQueue[_Ticket | None] = queue.SimpleQueue()
        self._to_infer: queue.SimpleQueue[_Ticket | None] = queue.SimpleQueue()
        self._slots = threading.Semaphore(2 * feeders + 2)
        self._alone, self._turn = threading.Lock(), threading.Lock()
        self._broken: BrokenDevice | None = None
        self._is_closed, self._feeding, self._ending = False, feeders, threading.Lock()
        for number in range(feeders):
            threading.Thread(target=self._feed, name=f"feeder-{number}", daemon=True).start()
        if feeders:
            threading.Thread(target=self._work, name="device", daemon=True).start()

    def run(self, pieces: Iterable[Any]) -> list[Any]:
        """Return what each piece comes to, in order. ``pieces`` is read in the caller's thread, no further ahead than
        there is room. Raises what any half raises of one of these pieces, BrokenDevice when another's broke the device.
        """
        if not self._feeders:
            return [self._by_itself(piece) for piece in pieces]
        tickets: list[_Ticket] = []
        with self._turn:  # one caller after the other: a process that dies has few of them half done
            if self._is_closed:
                raise RuntimeError("this engine is closed")
            for piece in pieces:
                self._slots.acquire()
                tickets.append(_Ticket(piece))
                self._to_prepare.put(tickets[-1])
                if any(each.done.done() and each.done.exception() for each in tickets[-2 * self._feeders - 4 :]):
                    break
        return [ticket.done.result() for ticket in tickets]

    def close(self) -> None:
        """End the threads once they have done what they have; nothing is run afterwards."""
        with self._turn:
            for _ in range(0 if self._is_closed else self._feeders):
                self._to_prepare.put(None)
            self._is_closed = True

    def _by_itself(self, piece: Any) -> Any:
        ready = self._halves.prepare(piece)
        with self._alone:
            try:
                return self._halves.fetch(self._halves.infer(ready))
            except Exception as error:
                seen = _as_broken(error)
                if seen is error:
                    raise
                raise seen from error

    def _feed(self) -> None:
        """Prepare what comes. The body of a feeder; the last to end ends the device's thread."""
        while (ticket := self._to_prepare.get()) is not None:
            try:
                ticket.held = self._halves.prepare(ticket.held)
                self._to_infer.put(ticket)
            except BaseException as error:
                self._fail(ticket, error)
        with self._ending:
            self._feeding -= 1
            if not self._feeding:
                self._to_infer.put(None)

    def _work(self) -> None:
        """Launch each batch as soon as it is ready, then take the one before from the device. The device's thread."""
        running: _Ticket | None = None
        while True:
            try:
                ticket = self._to_infer.get_nowait() if running else self._to_infer.get()
            except queue.Empty:
                self._take(running)
                running = None
                continue
            launched = ticket is not None and self._launch(ticket)
            self._take(running)
            running = ticket if launched else None
            if ticket is None:
                return

    def _launch(self, ticket: _Ticket) -> bool:
        try:
            if self._broken:
                raise self._broken
            ticket.held = self._halves.infer(ticket.held)
            self._slots.release()
            return True
        except BaseException as error:
            self._fail(ticket, error)
            return False

    def _take(self, ticket: _Ticket | None) -> None:
        if ticket is None:
            return
        running, ticket.held = ticket.held, None  # or every batch of an item stays on the device until its end
        try:
            ticket.done.set_result(self._halves.fetch(running))
        except BaseException as error:
            self._refuse(ticket, error)

    def _fail(self, ticket: _Ticket, error: BaseException) -> None:
        self._slots.release()
        self._refuse(ticket, error)

    def _refuse(self, ticket: _Ticket, error: BaseException) -> None:
        seen, ticket.held = _as_broken(error), None
        if seen is not error:
            seen.__cause__ = error
        if isinstance(seen, BrokenDevice):
            self._broken = seen
        ticket.done.set_exception(seen)


class RemoteEngine(Engine):
    """An engine for a model that others run: what is ready is handed over while answers are waited for, with at most
    ``under_way`` pieces handed over and not yet taken back. They are taken in order."""

    def __init__(self, halves: EngineStages, feeders: int, under_way: int) -> None:
        self._running: queue.Queue[_Ticket | None] = queue.Queue(under_way)
        super().__init__(halves, max(1, feeders))

    def _work(self) -> None:
        threading.Thread(target=self._take_all, name="answers", daemon=True).start()
        while (ticket := self._to_infer.get()) is not None:
            if self._launch(ticket):
                self._running.put(ticket)
        self._running.put(None)

    def _take_all(self) -> None:
        while (ticket := self._running.get()) is not None:
            self._take(ticket)


@dataclass
class _Ticket:
    """A piece on its way: what it is by now, and what it comes to."""

    held: Any
    done: Future[Any] = field(default_factory=Future)


def _as_broken(error: BaseException) -> BaseException:
    """Return BrokenDevice for an error after which every call on a CUDA device fails; any other error as it is.

    Memory that ran out, as any library says it, leaves the device as it was. Torch has its own class for the others
    since 2.9, and a text.
    """
    said, kind = str(error), type(error).__name__
    if (
        kind == "OutOfMemoryError"
        or isinstance(error, BrokenDevice)
        or "out of memory" in said
        or "ALLOC_FAILED" in said
    ):
        return error
    if kind == "AcceleratorError" or (isinstance(error, RuntimeError) and "CUDA error" in said):
        return BrokenDevice(f"{kind}: {error}")
    return error
