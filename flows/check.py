"""Check a lake, print its damages, and repair them, for the command and the Prefect flow."""

from collections import Counter

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.side_folders import reports_folder
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.upkeep.damages import describe
from pairmill.tasks.upkeep.lake_check import Checked, Show, check_lake
from pairmill.tasks.upkeep.removal import finish_unfinished

SHOWN = 200


def check_steps(uri: str, deep: bool, repair: bool, say: Show, show: Show, lose_rows: bool = False) -> Checked:
    """Check the lake at ``uri``; return its damages, or after a repair those that are left.

    With ``deep`` every picture is read too, and its hash compared. ``repair`` finishes removals, reads lost pages again
    where sources allow, removes damaged files, and checks again; ``lose_rows`` lets it remove rows that nothing can
    compute again. ``say`` gets a line for each damage, for each repair and for the sum, ``show`` the progress.
    """
    if repair:
        check_is_lake(uri)
    with create_or_open(uri, read_only=not repair) as lake:
        if repair:
            from pairmill.tasks.upkeep.repair import repair as repaired

            _finish_removals(lake, say)
        found = _check_once(lake, deep, say, show)
        if not (repair and found.damages):
            return found
        for line in repaired(lake, found.damages, show, deep, lose_rows):
            say(line)
        _finish_removals(lake, say)
        say("checked again:")
        return _check_once(lake, deep, say, show)


def _finish_removals(lake: Lake, say: Show) -> None:
    """Finish unfinished removals. A damaged file that hinders one is said: the repair may take it out."""
    try:
        for line in finish_unfinished(lake, reports_folder(lake.uri)):
            say(line)
    except Damaged as error:
        say(f"removals are unfinished until the damage is repaired: {error}")


def format_repairable(found: Checked) -> str:
    """Format how many damages `--repair` can mend, such as '3 of 5'; '' if none."""
    n = sum(damage.is_repairable for damage in found.damages)
    return f"{n:,} of {len(found.damages):,}" if n else ""


def _check_once(lake: Lake, deep: bool, say: Show, show: Show) -> Checked:
    """Check the lake once; print the first SHOWN damages and the sum."""
    found = check_lake(lake, deep, show)
    for damage in found.damages[:SHOWN]:
        say(describe(lake, damage))
    if (more := len(found.damages) - SHOWN) > 0:
        say(f"… and {more:,} more")
    scope = "files, rows and pictures" if deep else "files and rows"
    size = f"{found.files:,} files of {found.bytes / 1e6:,.1f} MB"
    counts = sorted(Counter(damage.trouble for damage in found.damages).items())
    say(f"{scope} of the lake checked ({size}): {', '.join(f'{n:,} {name}' for name, n in counts) or 'all whole'}")
    return found
