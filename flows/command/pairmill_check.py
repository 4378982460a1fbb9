"""Implement `pairmill check`: compare a lake with its catalog, name what is damaged, and repair it."""

import sys
from argparse import Namespace

from pairmill.catalog.keep.lost_rows import Damage, described
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.tasks.keep.lake_check import Checked, check_lake

# Exit status for cron: 1 is an error before the check's end, as of every command.
DAMAGED = 3
SHOWN = 200


def check(args: Namespace) -> int:
    """Print what is damaged and what it costs; return 0 for a whole or repaired lake, DAMAGED otherwise."""
    if args.repair:
        return _repair(args)
    with create_or_open(args.lake, read_only=True) as lake:
        checked = _checked(lake, args.deep)
    if not checked.damages:
        return 0
    n = sum(damage.is_repairable for damage in checked.damages)
    if n:
        print(f"--repair repairs {n:,} of {len(checked.damages):,}")
    return DAMAGED


def _repair(args: Namespace) -> int:
    """Check, repair, and check again; return 0 if nothing is left but work for the next run."""
    from pairmill.tasks.keep.repair import repair

    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        checked = _checked(lake, args.deep)
        if not checked.damages:
            return 0
        for line in repair(lake, checked.damages, _show):
            print(visible(line))
        print("checked again:")
        left = _checked(lake, args.deep)
    return DAMAGED if left.damages else 0


def _checked(lake: Lake, deep: bool) -> Checked:
    """Check a lake; print each damage and the sum."""
    found = check_lake(lake, deep, _show)
    _end_of_line()
    for damage in found.damages[:SHOWN]:
        print(visible(described(lake, damage)))
    if (more := len(found.damages) - SHOWN) > 0:
        print(f"… and {more:,} more")
    print(_sum(found, deep))
    return found


def _sum(found: Checked, deep: bool) -> str:
    """Say in one line what was checked and what was found."""
    scope = "files, rows and pictures" if deep else "files and rows"
    size = f"{found.files:,} files of {found.bytes / 1e6:,.1f} MB"
    return f"{scope} of the lake checked ({size}): " + (_counted(found.damages) if found.damages else "all whole")


def _counted(damages: tuple[Damage, ...]) -> str:
    """Count damages by trouble."""
    names = sorted({damage.trouble for damage in damages})
    return ", ".join(f"{sum(each.trouble == name for each in damages):,} {name}" for name in names)


def _show(text: str) -> None:
    """Overwrite the line of progress on a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _end_of_line() -> None:
    """Remove the line of progress."""
    _show("")
