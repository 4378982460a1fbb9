"""Implement `pairmill verify`: recompute a dataset version's decisions, and name what differs."""

from argparse import Namespace

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.verification import verify as verified
from pairmill.flows.command.terminal import console, shown


def verify(args: Namespace) -> int:
    """Print how many decisions and pairs agree with a second cut; return 1 if any differs."""
    screen = console()
    with create_or_open(args.lake, read_only=True) as lake:
        found = verified(lake, datasets.find(lake, args.dataset))
    part = "" if found.images == found.of else f" of {found.of:,} (whole clusters drawn at random)"
    pairs = f" and the texts of {found.pairs:,} pairs" if found.pairs else ""
    screen.print(shown(f"{found.images:,} decisions{part}{pairs} computed again from the scores"))
    if found.unchecked:
        rules = f"only the rules {', '.join(found.checked)} are" if found.checked else "no rule is"
        screen.print(shown(f"scores were forgotten since: {', '.join(found.unchecked)}, and what follows from them, "
                           f"can no longer be checked; {rules} compared"))  # fmt: skip
    for each in found.shown:
        screen.print(shown(f"{each.image_id}: the version has {each.stored}, the second cut {each.found}"))
    if found.differing:
        screen.print(f"{found.differing:,} differ; `pairmill why IMAGE` explains one")
        return 1
    screen.print("all that can be checked agree" if found.unchecked else "all agree")
    return 0
