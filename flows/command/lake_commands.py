"""Implement the commands on a whole lake: `browse`, `mcp`, `check` and `maintain`."""

import sys
from argparse import Namespace

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError

DAMAGED = 3  # exit status for cron: 1 is an error before the check's end, as of every command


def browse(args: Namespace) -> int:
    """Serve the lake's pages, and print their address, until interrupted.

    Raises PairmillError without a lake or with a port in use.
    """
    from pairmill.flows.browse.application import serve

    def announce(address: str) -> None:
        print(f"{args.lake} is shown at {address}\nOpen it on this machine; Ctrl-C ends it.", flush=True)

    serve(args.lake, args.port, announce)
    return 0


def mcp(args: Namespace) -> int:
    """Serve the lake by the Model Context Protocol until stdin is closed. Raises PairmillError without a lake."""
    from pairmill.flows.agents.mcp_server import serve

    check_is_lake(args.lake)
    serve(args.lake)
    return 0


def check(args: Namespace) -> int:
    """Print the lake's damages, and repair them with ``--repair``; return 0 if none is left, else DAMAGED."""
    from pairmill.flows.check import check_steps, format_repairable

    if args.lose_rows and not args.repair:
        raise PairmillError("--lose-rows says what --repair may do: add --repair.")
    found = check_steps(args.lake, args.deep, args.repair, _say, _show, args.lose_rows)
    if found.damages and not args.repair and (share := format_repairable(found)):
        print(f"--repair repairs {share}")
    return DAMAGED if found.damages else 0


def _say(line: str) -> None:
    """Print a line on stdout, after clearing the line of progress."""
    _show("")
    print(visible(line))


def _show(text: str) -> None:
    """Overwrite the line of progress on a terminal; '' clears it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def maintain(args: Namespace) -> int:
    """Maintain the lake and print a line for each step. Raises LeaseHeld if a run writes to it."""
    from pairmill.flows.maintain import Limits, maintain_steps

    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        for line in maintain_steps(lake, Limits(days=args.days)):
            print(visible(line), flush=True)
    return 0
