"""Show a run's progress as live bars in a terminal, or as a line now and then in other output."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from pairmill.flows.run.progress_text import duration, progress_text
from pairmill.tasks.run.place.progress import Progress
from pairmill.tasks.run.session import Session


@dataclass
class _Open:
    """The current round of a step: its progress bar, start time, newest progress, and the first finished rows."""

    bar: TaskID
    began: float
    newest: Progress
    first: tuple[int, float] = (0, 0.0)  # rows, and when they were finished

    def text(self) -> str:
        """Format the round's progress, with rate and time left: those after the first rows, for which workers start."""
        done, (rows, at) = self.newest.done, self.first
        if not done:
            return progress_text(self.newest, time.monotonic() - self.began)
        return progress_text(self.newest, (time.monotonic() - at) * done / (done - rows) if done > rows else 0.0)


class Display:
    """Progress bars of a run, one per step, in pictures, sentences or files. A step without work gets no bar.

    Output other than a terminal gets a line when a step ends, and one after every EVERY_SECONDS without a line.
    """

    EVERY_SECONDS: ClassVar[float] = 30.0

    def __init__(self, console: Console) -> None:
        self._console = console
        name, done = TextColumn("{task.description:<24}"), TextColumn("{task.fields[done]}")
        columns = (SpinnerColumn(), name, BarColumn(), done, TimeElapsedColumn())
        self._bars = Bars(*columns, console=console, disable=not console.is_terminal)
        self._open: dict[str, _Open] = {}
        self._now = self._bars.add_task("", total=None, visible=False, done="")
        self._step, self._began, self._told = "", time.monotonic(), time.monotonic()
        self._lock, self._ended = threading.RLock(), threading.Event()
        self._clock = threading.Thread(target=self._tell_now_and_then, name="progress", daemon=True)

    def __enter__(self) -> Self:
        self._bars.start()
        if not self._console.is_terminal:
            self._clock.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._clock.is_alive():
            self._clock.join()
        self._bars.update(self._now, visible=False)
        self._bars.stop()

    def say(self, text: str) -> None:
        """Show a line of text below the bars; print it if the output is not a terminal."""
        if self._console.is_terminal:
            self._bars.update(self._now, done=text)
        else:
            self._print(text)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the live display during the ``with`` block, which may print or read input."""
        self._bars.stop()
        try:
            with self._lock:
                yield
                self._told = time.monotonic()
        finally:
            self._bars.start()

    def run_step(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run a step and return its result; show the step's name below the bars meanwhile."""
        self._step, self._began = step.__name__.replace("_", " "), time.monotonic()
        self._bars.update(self._now, done="", description=self._step, visible=True)
        return step(session)

    def waiting(self, step: str, text: str) -> None:
        """Show below the bars what ``step`` waits for. Print nothing without a terminal: the log has the text."""
        self._bars.update(self._now, done=text)

    def progress(self, progress: Progress) -> None:
        """Update the bar of a step. Call it at a round's start and after each finished work item."""
        with self._lock:
            if progress.is_begin or progress.step not in self._open:
                bar = self._bars.add_task(progress.step, total=progress.total, done="")
                self._open[progress.step] = _Open(bar, time.monotonic(), progress)
            shown = self._open[progress.step]
            shown.newest = progress
            if progress.done and not shown.first[0]:
                shown.first = progress.done, time.monotonic()
            self._bars.update(shown.bar, completed=progress.done, done=shown.text())
            if progress.is_end:
                del self._open[progress.step]
                self._bars.stop_task(shown.bar)
                if not self._console.is_terminal:
                    rows = f"{shown.text()}, " if progress.unit else ""
                    self._print(f"{progress.step}: {rows}{time.monotonic() - shown.began:.1f} s")

    def _print(self, text: str) -> None:
        """Print a line of output that is no terminal."""
        with self._lock:
            self._console.print(text, highlight=False, markup=False)
            self._told = time.monotonic()

    def _tell_now_and_then(self) -> None:
        """Print the current step's progress after each EVERY_SECONDS without output, until the display ends."""
        while not self._ended.wait(min(1.0, self.EVERY_SECONDS / 4)):
            with self._lock:
                if time.monotonic() - self._told >= self.EVERY_SECONDS:
                    self._print(self._state())

    def _state(self) -> str:
        """Format the progress of the newest round, else the step's name and its time so far."""
        if self._open:
            step, shown = list(self._open.items())[-1]
            return f"{step}: {shown.text()}"
        return f"{self._step or 'at work'}: {duration(time.monotonic() - self._began)} so far"
