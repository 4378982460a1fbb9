"""Compute values in a background thread, one at a time, and cache them by key."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Background(Generic[Made]):
    """Cache of values by key. One background thread computes them, again once the state of their inputs changes."""

    def __init__(self) -> None:
        self._maker = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[object, Future[Made]]] = {}

    def find(self, key: str, state: object, make: Callable[[], Made], patience: float) -> Made | None:
        """Return the value of ``key``; compute it by ``make`` if it is missing or was computed from another ``state``.

        Return None if it is not ready after ``patience`` seconds. Raises the errors of ``make``; the next call computes
        it again.
        """
        with self._lock:
            if key not in self._made or self._made[key][0] != state:
                self._made[key] = state, self._maker.submit(make)
            future = self._made[key][1]
        try:
            return future.result(patience)
        except Exception as error:
            if isinstance(error, TimeoutError) and not future.done():  # ours, not one that `make` raised
                return None
            with self._lock:
                self._made.pop(key, None)
            raise

    def forget(self) -> None:
        """Drop all cached values; later calls compute them again."""
        with self._lock:
            self._made.clear()

    def close(self) -> None:
        """Cancel the values that wait, and wait for the one being computed."""
        self._maker.shutdown(cancel_futures=True)
