"""Implement `pairmill check`: compare a lake with its catalog, name what is damaged, and repair it."""

import sys
from argparse import Namespace

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.check import check_steps, repairable

# Exit status for cron: 1 is an error before the check's end, as of every command.
DAMAGED = 3


def check(args: Namespace) -> int:
    """Print what is damaged and what it costs; return 0 for a whole or repaired lake, DAMAGED otherwise."""
    if args.lose_rows and not args.repair:
        raise PairmillError("--lose-rows says what --repair may do: add --repair.")
    found = check_steps(args.lake, args.deep, args.repair, _say, _show, args.lose_rows)
    if found.damages and not args.repair and (share := repairable(found)):
        print(f"--repair repairs {share}")
    return DAMAGED if found.damages else 0


def _say(line: str) -> None:
    """Print a line in the place of the progress."""
    _show("")
    print(visible(line))


def _show(text: str) -> None:
    """Overwrite the line of progress on a terminal; '' removes it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
