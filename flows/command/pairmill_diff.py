"""Implement `pairmill diff`: compare two dataset versions, and fail if the difference meets a condition."""

import operator
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from typing import TYPE_CHECKING

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import open_lake
from pairmill.flows.command.ask import answer, ask, print_answer

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Spread, VersionDiff

_FORM = re.compile(r"(gained|lost|changed)\s*(>=|<=|>|<)\s*(\d+(?:\.\d+)?)\s*(%?)")
_COMPARE = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


def diff(args: Namespace) -> int:
    """Print the difference of two versions; return 1 if it meets a condition of ``--fail-if``."""
    if args.format == "schema":
        return ask(args)
    conditions = {text.strip(): diff_condition(text) for text in args.fail_if}
    with open_lake(args.lake) as lake:
        found = answer(args, lake)
    print_answer(args, found)
    met = [text for text, holds in conditions.items() if holds(found)]
    for text in met:
        print(visible(f"pairmill: {found.before} → {found.after}: {text}"), file=sys.stderr)
    return 1 if met else 0


def diff_condition(text: str) -> "Callable[[VersionDiff], bool]":
    """Parse a condition such as 'lost > 5%'; return a function that tests whether a difference meets it.

    If the earlier version is empty, one pair exceeds every share. Raises PairmillError for a text of another form.
    """
    found = _FORM.fullmatch(text.strip())
    if not found:
        raise PairmillError(
            f"--fail-if '{text[:80]}' is no condition; write gained, lost or changed, a comparison, and pairs or a "
            'share of the earlier version\'s: "lost > 5%".'
        )
    kind, compare, number, percent = found.groups()

    def holds(diff: "VersionDiff") -> bool:
        n = getattr(diff, kind)
        share = 100 * n / diff.pairs_before if diff.pairs_before else (float("inf") if n else 0.0)
        return _COMPARE[compare](share if percent else n, float(number))

    return holds


def print_diff(found: "VersionDiff") -> None:
    """Print a difference as tables: counts by cause and group, and the drift of values."""
    print(visible(f"{found.before} has {found.pairs_before:,} pairs, {found.after} {found.pairs_after:,}"))
    print(f"gained {found.gained:,}, lost {found.lost:,}, changed {found.changed:,}")
    if found.causes:
        print(f"\n{'pairs':<9}{'because of':<12}{'cause':<44}{'number':>10}")
    for each in found.causes:
        print(visible(f"{each.kind:<9}{each.why:<12}{each.cause[:42]:<44}{each.n:>10,}"))
    if found.groups:
        print(f"\n{'group':<10}{'value':<46}{'gained':>9}{'lost':>10}")
    for each in found.groups:
        print(visible(f"{each.group:<10}{each.value[:44]:<46}{each.gained:>9,}{each.lost:>10,}"))
    print(f"\n{'measure':<22}{'':<14}{'pairs':>9}{'mean':>9}{'10 %':>9}{'median':>9}{'90 %':>9}")
    for each in found.drift:
        print(visible(f"{each.measure:<22}{found.before[-13:]:<14}{_spread(each.before)}"))
        print(visible(f"{'':<22}{found.after[-13:]:<14}{_spread(each.after)}"))


def _spread(spread: "Spread") -> str:
    """Format count, mean and quantiles of a measure in columns."""
    values = (spread.mean, spread.p10, spread.p50, spread.p90)
    return f"{spread.n:>9,}" + "".join(f"{'–' if value is None else f'{value:.4g}':>9}" for value in values)
