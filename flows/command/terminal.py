"""Set up terminal output: text and tables as wide as the terminal, unwrapped in a file or a pipe."""

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table


def console() -> Console:
    """Make a console on stdout."""
    return Console(width=None if sys.stdout.isatty() else 10_000, soft_wrap=True, highlight=False)


def table(title: str, left: Sequence[str], right: Sequence[str], last: Sequence[str] = ()) -> Table:
    """Make an unruled table: columns of text, then of numbers, then of text again."""
    made = Table(title=title or None, title_justify="left", box=None, padding=(0, 2), header_style="bold")
    for names, side in ((left, "left"), (right, "right"), (last, "left")):
        for name in names:
            made.add_column(name, justify=side, overflow="fold")  # pyright: ignore[reportArgumentType]
    return made
