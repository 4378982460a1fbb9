"""Make values in the background, one at a time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Background(Generic[Made]):
    """Values by key, made by a thread of their own, and anew when the state changes that they are made from."""

    def __init__(self) -> None:
        self._maker = ThreadPoolExecutor(1)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[object, Future[Made]]] = {}

    def find(self, key: str, state: object, make: Callable[[], Made], patience: float) -> Made | None:
        """Return the value, None while it is still being made after ``patience`` seconds.

        Raises what ``make`` raises; the next call makes it again.
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
        """Forget all values; the next calls make them again."""
        with self._lock:
            self._made.clear()

    def close(self) -> None:
        """Wait for the value that is being made."""
        self._maker.shutdown(cancel_futures=True)
