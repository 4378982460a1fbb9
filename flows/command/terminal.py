r"""Print to a terminal, file or pipe, safe against control codes and markup in data from strangers.

File names and page texts come from strangers. All output passes through here: control codes and overrides of direction
become visible (``\u001b``), and rich's markup is escaped.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TYPE_CHECKING, Any, NoReturn, TextIO, cast

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment

from pairmill.catalog.terms.controls import visible

if TYPE_CHECKING:
    from rich.table import Table


DEMO = "[yellow]demo[/] "  # before a text by a small model that ships


class Screen(Console):
    """A rich console that prints control codes of data as visible text: only rich itself moves the cursor.

    If its reader has gone, it raises BrokenPipeError as `print` does; rich's own console ends the process.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Yield the segments of a renderable, with control codes of its text made visible (rich's hook)."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        """Raise BrokenPipeError (rich's hook, called when the reader of the output has gone)."""
        raise BrokenPipeError


class ClosableStream:
    """A text stream that discards output once its reader or its terminal has gone."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write ``text`` unless the reader has gone; return its length."""
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Flush unless the reader has gone."""
        self._attempt(self._stream.flush)

    def _attempt(self, write: Callable[[], object]) -> None:
        """Call ``write``; on EPIPE or EIO, discard all later output."""
        try:
            write()
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # drops what is buffered too


@contextmanager
def tolerate_closed_output() -> Iterator[None]:
    """Discard output to stdout and stderr that has no reader any more, during the ``with`` block.

    `pairmill run … | head -2` must not end a run of days.
    """
    out, err = (cast(TextIO, ClosableStream(each)) for each in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(err):
        yield


def console() -> Console:
    """Create a console on stdout, unwrapped in a file or pipe. Printing raises BrokenPipeError without a reader."""
    width = None if sys.stdout.isatty() else 10_000
    return Screen(width=width, soft_wrap=True, highlight=False, emoji=False)


def shown(value: object) -> str:
    """Escape data for a line of rich markup: line breaks, markup and control codes take no effect."""
    return escape(visible(str(value)).replace("\r", "\\u000d").replace("\n", "\\u000a"))


def print_notes(screen: Console, notes: Iterable[str]) -> None:
    """Print the notes on a run, a line each."""
    for note in notes:
        screen.print(f"[yellow]note:[/] {shown(note)}")


def cell(value: object) -> str:
    """Escape data for a cell of a rich table; line breaks stay, markup and control codes take no effect."""
    return escape(visible(str(value)))


def table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> "Table":
    """Create an empty rich table without lines, with columns aligned left, then right, then left (``last``)."""
    from rich.table import Table

    made = Table(title=title or None, title_justify="left", box=None, padding=(0, 2), header_style="bold")
    for names, side in ((left, "left"), (right, "right"), (last, "left")):
        for name in names:
            made.add_column(name, justify=side, overflow="fold")  # pyright: ignore[reportArgumentType]
    return made
