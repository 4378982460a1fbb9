"""Keep a device busy: feeder threads prepare batches ahead, and a single thread calls the device.

Decoding and resizing an image takes a CPU longer than the model takes on a device, so a process that does one after the
other leaves its card idle most of the time. Decoding, resizing and copies release Python's global lock (GIL), so
threads suffice; processes would have to copy each batch once more.

The feeders are threads. Measured by infra/bench/feeders.py beside transformers' ``generate``, two threads prepare 183
and 146 images a second (two runs), two processes 131 and 152, where a card needs 25 for a model of 17B and 58 for one
of 7B. At these rates the device's thread loses 3 to 15 % of its rate to threads, 2 to 5 % to processes. Captured
decoding waits for the card without the GIL and loses under 1 %.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Protocol

from pairmill.ops.models.device.failures import is_broken
from pairmill.ops.models.generation import Stepwise


class EngineStages(Protocol):
    """The three functions that an engine calls for each batch.

    Several feeders call ``prepare`` at once. Only the device's thread calls ``infer`` and ``fetch``. It fetches a batch
    after it has launched the next one, so the device works while the thread waits.

    An optional fourth function, ``stepwise``, receives a launched batch and returns it as `Stepwise`, or None. A
    stepwise batch is fetched as soon as it has ended. It advances only while no prepared batch waits: a batch that
    could be launched would otherwise leave a part of the device unused.
    """

    def prepare(self, piece: Any, /) -> Any:
        """Convert a piece (one batch of rows) to the model's inputs, on the CPU."""

    def infer(self, ready: Any, /) -> Any:
        """Launch the model on prepared inputs, without waiting; return the launched batch."""

    def fetch(self, running: Any, /) -> Any:
        """Wait for a launched batch and return its outputs."""


def held_bytes(value: Any) -> int:
    """Return the bytes of all tensors and arrays in nested tuples, lists, dicts and dataclasses."""
    if (size := getattr(value, "nbytes", None)) is not None:
        return int(size)
    if isinstance(value, dict):
        return sum(map(held_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(held_bytes, value))
    if is_dataclass(value):
        return sum(held_bytes(getattr(value, field.name)) for field in fields(value))
    return len(value) if isinstance(value, bytes) else 0


class HeldBytes:
    """Memory budget of ``most`` bytes for prepared batches; 0: no limit. Thread-safe.

    A batch's size is known only once it is prepared, so a new batch is assumed to be as large as the largest so far,
    and the first one is prepared alone. One batch is always admitted, however large it is.
    """

    def __init__(self, most: int) -> None:
        self._most, self._held, self._largest = most, 0, 0
        self._preparing = self._ready = 0
        self._changed = threading.Condition()

    def reserve(self) -> None:
        """Block until the budget has room to prepare another batch."""
        with self._changed:
            self._changed.wait_for(self._has_room)
            self._preparing += 1

    def hold(self, size: int) -> None:
        """Count a prepared batch of ``size`` bytes against the budget."""
        with self._changed:
            self._preparing -= 1
            self._ready += 1
            self._held += size
            self._largest = max(self._largest, size)
            self._changed.notify_all()

    def release(self, size: int) -> None:
        """Return ``size`` bytes to the budget: the batch's inputs are on the device, or the batch has failed."""
        with self._changed:
            self._ready -= 1
            self._held -= size
            self._changed.notify_all()

    def _has_room(self) -> bool:
        if not self._most or not (self._preparing or self._ready):
            return True
        return bool(self._largest) and self._held + (self._preparing + 1) * self._largest <= self._most


class BrokenDevice(Exception):
    """Every further call on the device fails in this process: its context is lost until a new process starts."""


class Engine:
    """Run the pieces (batches) of several callers through one model. No batch mixes rows of two callers.

    ``feeders`` threads call ``prepare``. At most ``2 * feeders + 2`` pieces are between the caller and the device, and
    at most ``most_bytes`` of prepared inputs (0: no limit; a single larger piece is admitted). With 0 feeders, each
    piece runs completely in the caller's thread.
    """

    def __init__(self, halves: EngineStages, feeders: int, most_bytes: int = 0) -> None:
        self._halves, self._feeders = halves, feeders
        self._stepwise: Callable[[Any], Stepwise | None] = getattr(halves, "stepwise", lambda _: None)
        self._memory = HeldBytes(most_bytes)
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
        """Run all ``pieces`` and return their outputs, in order.

        The caller's thread reads ``pieces``, only as far ahead as there is room.

        Raises RuntimeError if the engine is closed, BrokenDevice if any caller's piece broke the device, and any error
        of `EngineStages` for one of these pieces.
        """
        if not self._feeders:
            return [self._by_itself(piece) for piece in pieces]
        tickets: list[_Ticket] = []
        with self._turn:  # one caller at a time, so that few callers' work is half done when the process dies
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
        """End the engine's threads after all queued pieces. No piece can run afterwards."""
        with self._turn:
            for _ in range(0 if self._is_closed else self._feeders):
                self._to_prepare.put(None)
            self._is_closed = True

    def _by_itself(self, piece: Any) -> Any:
        """Run one piece in the caller's thread, one caller at a time."""
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
        """Prepare queued pieces until the engine closes; the last feeder to end also ends the device's thread."""
        while (ticket := self._to_prepare.get()) is not None:
            self._memory.reserve()
            try:
                ticket.held = self._halves.prepare(ticket.held)
                ticket.bytes = held_bytes(ticket.held)
            except BaseException as error:
                self._memory.hold(0)
                self._fail(ticket, error)
                continue
            self._memory.hold(ticket.bytes)
            self._to_infer.put(ticket)
        with self._ending:
            self._feeding -= 1
            if not self._feeding:
                self._to_infer.put(None)

    def _work(self) -> None:
        """Launch prepared batches while there are any, else advance; fetch those that have ended.

        Body of the device's thread.
        """
        running: deque[_Ticket] = deque()
        while True:
            try:
                ticket = self._to_infer.get_nowait() if running else self._to_infer.get()
            except queue.Empty:
                self._advance(running)
                self._take_ended(running, 0)
                continue
            if ticket is None:
                break
            if launched := self._launch(ticket):
                running.append(ticket)
            self._take_ended(running, int(launched))
        for ticket in running:
            self._take(ticket)

    def _take_ended(self, running: "deque[_Ticket]", newest: int) -> None:
        """Fetch the batches that have ended, in order, up to the first that has not; leave the ``newest`` ones."""
        while len(running) > newest and self._has_ended(running[0]):
            self._take(running.popleft())

    def _has_ended(self, ticket: "_Ticket") -> bool:
        """Return whether a launched batch can be fetched. Runs no work of the device."""
        batch = self._stepwise(ticket.held)
        return self._broken is not None or batch is None or batch.has_ended

    def _advance(self, running: "deque[_Ticket]") -> None:
        """Do some of the work of the oldest batch; if that fails, fetch it, which raises the error."""
        try:
            if self._broken is None and (batch := self._stepwise(running[0].held)):
                batch.advance()
        except BaseException:
            self._take(running.popleft())

    def _launch(self, ticket: "_Ticket") -> bool:
        """Call ``infer`` for a ticket and free its slot; return whether it was launched."""
        try:
            if self._broken:
                raise self._broken
            ticket.held = self._halves.infer(ticket.held)
            self._slots.release()
            self._memory.release(ticket.bytes)
            return True
        except BaseException as error:
            self._fail(ticket, error)
            return False

    def _take(self, ticket: "_Ticket") -> None:
        """Fetch a launched ticket and set its output."""
        running, ticket.held = ticket.held, None  # otherwise a work item's batches all stay on the device
        try:
            ticket.done.set_result(self._halves.fetch(running))
        except BaseException as error:
            self._refuse(ticket, error)

    def _fail(self, ticket: "_Ticket", error: BaseException) -> None:
        """Free the slot and the memory of a ticket that never launched, and set its error."""
        self._slots.release()
        self._memory.release(ticket.bytes)
        self._refuse(ticket, error)

    def _refuse(self, ticket: "_Ticket", error: BaseException) -> None:
        """Set a ticket's error. After a BrokenDevice, every later launch fails."""
        seen, ticket.held = _as_broken(error), None
        if seen is not error:
            seen.__cause__ = error
        if isinstance(seen, BrokenDevice):
            self._broken = seen
        ticket.done.set_exception(seen)


class RemoteEngine(Engine):
    """Engine for a model outside this process, such as behind endpoints: several launched batches are pending at once.

    At most ``under_way`` pieces are launched and not fetched. They are fetched in order.
    """

    def __init__(self, halves: EngineStages, feeders: int, under_way: int) -> None:
        self._running: queue.Queue[_Ticket | None] = queue.Queue(under_way)
        super().__init__(halves, max(1, feeders))

    def _work(self) -> None:
        """Launch ready batches until the engine closes, blocking while ``under_way`` batches are not fetched."""
        threading.Thread(target=self._take_all, name="answers", daemon=True).start()
        while (ticket := self._to_infer.get()) is not None:
            if self._launch(ticket):
                self._running.put(ticket)
        self._running.put(None)

    def _take_all(self) -> None:
        """Fetch launched tickets in order. Body of the thread that waits for answers."""
        while (ticket := self._running.get()) is not None:
            self._take(ticket)


@dataclass
class _Ticket:
    """The state of one piece of work in an engine, from its submission until its output is there."""

    held: Any  # the piece, then its prepared inputs, then the running batch
    bytes: int = 0  # of its prepared inputs
    done: Future[Any] = field(default_factory=Future)  # its output or its error


def _as_broken(error: BaseException) -> BaseException:
    """Return BrokenDevice for an error after which every call on a device fails, and any other error unchanged."""
    return BrokenDevice(f"{type(error).__name__}: {error}") if is_broken(error) else error
