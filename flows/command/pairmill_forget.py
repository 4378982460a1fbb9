"""Implement `pairmill forget`: remove the scores of one scorer, after saying what they decided."""

import sys
from argparse import Namespace

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable, datasets_made_with, forgettable
from pairmill.tasks.upkeep.forget import forget as forget_scorer


def forget(args: Namespace) -> int:
    """Say what can no longer be evaluated, ask, and remove the scores."""
    check_is_lake(args.lake)
    with create_or_open(args.lake, read_only=args.dry_run) as lake:
        found = forgettable(lake, args.scorer)
        _print(found, datasets_made_with(lake, found))
        if args.dry_run:
            return 0
        if not args.yes:
            _confirm()
        _, erased = forget_scorer(lake, found.digest)
    _say(f"forgotten: {erased.rewritten:,} files rewritten, {erased.removed:,} removed")
    if erased.why:
        _say(f"catalog not rewritten: {erased.why}. Close what reads the lake, then run `pairmill maintain`.")
    return 0


def _print(found: Forgettable, again: tuple[str, ...]) -> None:
    """Print the scorer's rows and what reads them."""
    rows = ", ".join(f"{n:,} of {table}" for table, n in found.rows.items())
    _say(f"scorer {found.name} {found.digest}: {rows}; {found.bytes / 1e6:,.1f} MB")
    for version, steps in found.versions:
        lost = f"{', '.join(steps)} can no longer be evaluated" if steps else "no rule reads these scores"
        _say(f"{version}: {lost}; its pairs and decisions stay")
    if not found.versions:
        _say("no published version was made with it")
    for name in again:
        _say(f"the next run of {name} makes these scores again, if its recipe still asks for them")
    if found.made_from_it:
        _say(f"made from it, and kept: {', '.join(found.made_from_it)}")


def _confirm() -> None:
    """Ask before anything goes. Raise PairmillError for any other answer than yes."""
    if not sys.stdin.isatty():
        raise PairmillError("nothing was removed. Look at `--dry-run`, then add --yes.")
    if input("remove these scores for good? ").strip().lower() not in ("y", "yes"):
        raise PairmillError("nothing was removed.")


def _say(text: str) -> None:
    print(visible(text), flush=True)
