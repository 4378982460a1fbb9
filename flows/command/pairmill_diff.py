"""Implement `pairmill diff`: compare two dataset versions, and fail if the difference meets a condition."""

import json
import sys
from argparse import Namespace
from dataclasses import asdict

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.diff_condition import diff_condition
from pairmill.catalog.queries.compare.version_diff import Spread, VersionDiff, version_diff
from pairmill.catalog.terms.controls import visible


def diff(args: Namespace) -> int:
    """Print the difference; return 1 if a condition of ``--fail-if`` is met."""
    conditions = [diff_condition(text) for text in args.fail_if]
    with create_or_open(args.lake, read_only=True) as lake:
        found = version_diff(lake, datasets.find(lake, args.before), datasets.find(lake, args.after))
    if args.format == "json":
        print(json.dumps(asdict(found), ensure_ascii=False))
    else:
        _show(found)
    met = [each.text for each in conditions if each.holds(found)]
    for text in met:
        print(visible(f"pairmill: {found.before} → {found.after}: {text}"), file=sys.stderr)
    return 1 if met else 0


def _show(found: VersionDiff) -> None:
    """Print a difference as tables."""
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


def _spread(spread: Spread) -> str:
    """Format a spread in columns."""
    values = (spread.mean, spread.p10, spread.p50, spread.p90)
    return f"{spread.n:>9,}" + "".join(f"{'–' if value is None else f'{value:.4g}':>9}" for value in values)
