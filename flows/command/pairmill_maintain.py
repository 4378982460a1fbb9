"""Implement `pairmill maintain`: bound a lake's files, catalog and caches, and retry what may pass now."""

from argparse import Namespace

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.flows.maintain import Limits, maintain_steps


def maintain(args: Namespace) -> int:
    """Maintain the lake and print a line for each step. Raises LeaseHeld if a run writes to it."""
    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        for line in maintain_steps(lake, Limits(days=args.days)):
            print(visible(line), flush=True)
    return 0
