"""Set up terminal output: as wide as the terminal, unwrapped in a file or a pipe, and deaf to what data would tell it.

Names of files and texts of pages are strangers'. Whatever is printed passes through here: control codes and overrides
of direction become visible (``\\u001b``), and the markup that rich acts on is escaped.
"""

import sys
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from catalog.terms.controls import visible


class Screen(Console):
    """A console on which only rich itself moves the cursor: a control code in what is printed becomes visible."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


def console() -> Console:
    """Make a console on stdout."""
    width = None if sys.stdout.isatty() else 10_000
    return Screen(width=width, soft_wrap=True, highlight=False, emoji=False)


def shown(value: object) -> str:
    """Write data so that it may stand in a line of markup: it stays one line, and neither tags nor codes act."""
    return escape(visible(str(value)).replace("\r", "\\u000d").replace("\n", "\\u000a"))


def cell(value: object) -> str:
    """Write data for a table's cell, where it may have lines."""
    return escape(visible(str(value)))


def table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """Make an unruled table: columns of text, then of numbers, then of text again."""
    made = Table(title=title or None, title_justify="left", box=None, padding=(0, 2), header_style="bold")
    for names, side in ((left, "left"), (right, "right"), (last, "left")):
        for name in names:
            made.add_column(name, justify=side, overflow="fold")  # pyright: ignore[reportArgumentType]
    return made
