"""Set up terminal output: as wide as the terminal, unwrapped in a file or a pipe, and deaf to what data would tell it.

Names of files and texts of pages are strangers'. Whatever is printed passes through here: control codes and overrides
of direction become visible (``\\u001b``), and the markup that rich acts on is escaped.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from pairmill.catalog.terms.controls import visible

if TYPE_CHECKING:
    from rich.table import Table


class Screen(Console):
    """A console on which only rich itself moves the cursor: a control code in what is printed becomes visible.

    It says by BrokenPipeError, as `print` does, that nobody reads it; rich's own ends the process.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


class ClosableStream:
    """A text stream that discards what is written once its reader, or its terminal, has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def _attempt(self, write: Callable[[], object]) -> None:
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            silence(self._stream)


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """Have stdout and stderr last during the body: `pairmill run … | head -2` must not end a run of days."""
    with (
        redirect_stdout(cast(TextIO, ClosableStream(sys.stdout))),
        redirect_stderr(cast(TextIO, ClosableStream(sys.stderr))),
    ):
        yield


def silence(stream: TextIO) -> None:
    """Discard what is written to the stream's file from now on, and what its buffer still holds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def console() -> Console:
    """Make a console on stdout. Printing raises BrokenPipeError when its reader has gone; see `tolerate_closed_output`."""
    width = None if sys.stdout.isatty() else 10_000
    return Screen(width=width, soft_wrap=True, highlight=False, emoji=False)


def shown(value: object) -> str:
    """Write data so that it may stand in a line of markup: it stays one line, and neither tags nor codes act."""
    return escape(visible(str(value)).replace("\r", "\\u000d").replace("\n", "\\u000a"))


def cell(value: object) -> str:
    """Write data for a table's cell, where it may have lines."""
    return escape(visible(str(value)))


def table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> "Table":
    """Make an unruled table: columns of text, then of numbers, then of text again."""
    from rich.table import Table

    made = Table(title=title or None, title_justify="left", box=None, padding=(0, 2), header_style="bold")
    for names, side in ((left, "left"), (right, "right"), (last, "left")):
        for name in names:
            made.add_column(name, justify=side, overflow="fold")  # pyright: ignore[reportArgumentType]
    return made
