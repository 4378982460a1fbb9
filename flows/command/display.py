"""Show a run's progress as live bars in a terminal, or as one line per finished step in other output."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from pairmill.tasks.run.session import Session


class Display:
    """Progress bars, one per step, in work items. A step without work gets no bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description:<24}"),
            BarColumn(),
            TextColumn("{task.fields[done]}"),
        )
        live = console.is_terminal
        self._bars = Progress(*columns, TimeElapsedColumn(), console=console, disable=not live)
        self._open: dict[str, tuple[TaskID, float]] = {}
        self._now = self._bars.add_task("", total=None, visible=False, done="")

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.update(self._now, visible=False)
        self._bars.stop()

    def say(self, text: str) -> None:
        """Show a line of text below the bars, or print it if the output is no terminal."""
        if self._console.is_terminal:
            self._bars.update(self._now, done=text)
        else:
            self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the live display during the body, which may print or read input."""
        self._bars.stop()
        try:
            yield
        finally:
            self._bars.start()

    def run_step(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run a step, with its name below the bars."""
        self._bars.update(self._now, done="", description=step.__name__.replace("_", " "), visible=True)
        return step(session)

    def waiting(self, step: str, text: str) -> None:
        """Show below the bars what ``step`` waits for. If the output is no terminal, the log already has the text."""
        self._bars.update(self._now, done=text)

    def progress(self, step: str, done: int, total: int) -> None:
        """Update the bar of ``step``. Called at the step's start and after each finished work item."""
        if done == 0 or step not in self._open:
            self._open[step] = (self._bars.add_task(step, total=total, done=""), time.monotonic())
        bar, started = self._open[step]
        self._bars.update(bar, completed=done, done=f"{done}/{total}")
        if done == total:
            del self._open[step]
            self._bars.stop_task(bar)
            if not self._console.is_terminal:
                self._console.print(f"{step}: {total} items, {time.monotonic() - started:.1f} s", highlight=False)
