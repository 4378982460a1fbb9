"""Implement `pairmill forget`: remove the scores of one scorer, after saying what they decided."""

from argparse import Namespace
from collections.abc import Iterator

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable, datasets_made_with, forgettable
from pairmill.flows.command.confirmed_removal import confirmed_removal, erased
from pairmill.tasks.upkeep.removal import forget as forget_scorer


def forget(args: Namespace) -> int:
    """Say what can no longer be evaluated, ask, and remove the scores."""
    check_is_lake(args.lake)
    with create_or_open(args.lake, read_only=args.dry_run) as lake:
        found = forgettable(lake, args.scorer)
        going = _going(found, datasets_made_with(lake, found))
        question = "remove these scores for good?"
        return confirmed_removal(args, going, question, lambda: forget_scorer(lake, found.digest)[1], erased)


def _going(found: Forgettable, again: tuple[str, ...]) -> Iterator[str]:
    """Yield lines that say what goes: rows by table, versions that read them, recipes that make them again."""
    rows = ", ".join(f"{n:,} of {table}" for table, n in found.rows.items())
    yield f"scorer {found.name} {found.digest}: {rows}; {found.bytes / 1e6:,.1f} MB"
    for version, steps in found.versions:
        lost = f"{', '.join(steps)} can no longer be evaluated" if steps else "no rule reads these scores"
        yield f"{version}: {lost}; its pairs and decisions stay"
    if not found.versions:
        yield "no published version was made with it"
    for name in again:
        yield f"the next run of {name} makes these scores again, if its recipe still asks for them"
    if found.made_from_it:
        yield f"made from it, and kept: {', '.join(found.made_from_it)}"
