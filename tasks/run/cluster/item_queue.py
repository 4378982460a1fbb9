"""Queue the work items of a stage on Ray, and track the actor of each item, lost actors and hanging workers."""

import pickle
import threading
import time
from collections import Counter, deque

# Seconds without a heartbeat after which an actor is lost.
SILENT_SECONDS = 15.0
# A second reader gets this in the place of a finished item: no item has this name, so every actor skips it.
FINISHED = pickle.dumps(("", 0, None, None))


class ItemQueue:
    """Ray actor that holds the unfinished work items and records which supervising actor works on each.

    An actor without a heartbeat for SILENT_SECONDS is lost with its machine. Its items are queued again, and so are
    items that may have been waiting inside it. A second actor that takes the same item must skip it.

    The queue stores the order in which it handed out items, 0.1 KB an item: 30 MB for ten steps over 30,000 shards.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)
        self._waiting, self._handed = deque[str](), list[str]()
        self._is_closed = False
        self._items: dict[str, bytes] = {}
        self._holders: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        self._heard: dict[str, float] = {}
        self._ahead: dict[str, tuple[int, str]] = {}
        self._hung: set[str] = set()
        self._job = (0, b"")
        self._left_out: dict[str, tuple[str, bytes]] = {}
        self._gone: set[str] = set()

    def use(self, number: int, job: bytes) -> None:
        """Set the pickled job, and its number, for all items that are queued later; earlier items are finished."""
        with self._lock:
            self._job = number, job

    def job(self) -> tuple[int, bytes]:
        """Return (number, pickled job) of the current job."""
        with self._lock:
            return self._job

    def put(self, items: dict[str, bytes]) -> None:
        """Queue pickled items by their names, which are never used again."""
        with self._more:
            self._items |= items
            self._waiting.extend(items)
            self._more.notify_all()

    def take(self, at: int) -> bytes | None:
        """Block until item number ``at``, from 0, is queued; return it pickled, or None if the queue is closed.

        If the process that reads the queue dies, Ray runs its task again, and drops as many rows as it had received.
        The second reader must therefore get the items of the first one in the same order.
        """
        with self._more:
            self._more.wait_for(lambda: self._is_closed or at < len(self._handed) or self._waiting)
            if self._is_closed:
                return None
            if at == len(self._handed):
                self._handed.append(self._waiting.popleft())
            return self._items.get(self._handed[at], FINISHED)

    def begin(self, name: str, minder: str) -> int:
        """Record that actor ``minder`` starts an item; return its number of starts, 0 if the actor must skip it."""
        with self._lock:
            if name not in self._items or name in self._holders:
                return 0
            self._holders[name] = minder
            self._tries[name] += 1
            return self._tries[name]

    def finish(self, name: str) -> None:
        """Record that the run has received an item's outcome."""
        with self._lock:
            self._items.pop(name, None)
            self._holders.pop(name, None)
            self._tries.pop(name, None)

    def hear(self, minder: str, rows: int, held: str) -> bool:
        """Record a heartbeat of actor ``minder``; return whether it must end its worker process, which hangs.

        ``rows`` is the number of finished rows of its unfinished items, ``held`` describes its rows in progress.
        """
        with self._lock:
            self._heard[minder], self._ahead[minder] = time.monotonic(), (rows, held)
            is_hung = minder in self._hung
            self._hung.discard(minder)
        return is_hung

    def progress(self) -> tuple[int, dict[str, str], int]:
        """Return the finished rows of unfinished items, texts on the rows in progress by actor, and the begun items."""
        with self._lock:
            living, begun = {minder: self._ahead[minder] for minder in self._heard}, len(self._holders)
        return sum(rows for rows, _ in living.values()), {minder: held for minder, (_, held) in living.items()}, begun

    def end_hung(self, minder: str) -> None:
        """Make actor ``minder`` end its worker process at its next heartbeat."""
        with self._lock:
            self._hung.add(minder)

    def requeue_lost(self) -> int:
        """Queue again the items that lost actors had or that may wait inside them; return the number of lost actors.

        Actors that ended because their machine is left out do not count as lost, but Ray may have handed them items.
        """
        limit = time.monotonic() - SILENT_SECONDS
        with self._lock:
            lost = {minder for minder, at in list(self._heard.items()) if at < limit}
            for minder in lost:
                del self._heard[minder]
            self._release(lost)
        return len(lost - self._gone)

    def leave_out(self, minder: str, node: str, host: str, error: bytes) -> None:
        """Record that the model does not fit machine ``node``, and queue the items of its actor ``minder`` again.

        The actor ends. No item is blamed: the actor's starts do not count. ``host`` is the machine's name for people,
        ``error`` the pickled exception.
        """
        with self._lock:
            self._left_out.setdefault(node, (host, error))
            self._gone.add(minder)
            self._tries.subtract(name for name, holder in self._holders.items() if holder == minder)
            self._release({minder})

    def left_out(self) -> dict[str, tuple[str, bytes]]:
        """Return (host, pickled exception) of each node that the model does not fit, by the node's id."""
        with self._lock:
            return dict(self._left_out)

    def _release(self, minders: set[str]) -> None:
        """Queue again the items that these actors have or that may wait inside them."""
        if not minders:
            return
        for name in [name for name, holder in self._holders.items() if holder in minders]:
            del self._holders[name]
        there = self._holders.keys() | set(self._waiting)
        self._waiting.extend(name for name in self._items if name not in there)
        self._more.notify_all()

    def close(self) -> None:
        """Drop all items; `take` returns None from now on."""
        with self._more:
            self._items.clear()
            self._is_closed = True
            self._more.notify_all()
