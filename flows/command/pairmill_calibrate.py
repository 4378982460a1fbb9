"""Implement `pairmill calibrate`: choose a rule's threshold from people's judgements of a random sample."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pairmill.catalog.terms.controls import visible
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.command.ask import answer, ask, print_answer

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import JudgedThreshold


def calibrate(args: Namespace) -> int:
    """Draw a sample to judge (``--draw``), or test thresholds by its verdicts; return 1 if no threshold holds yet."""
    if args.format == "schema":
        return ask(args)
    with open_lake(args.lake) as lake:
        if args.draw:
            return _draw(args, lake)
        if args.labels:
            with lake.judging(args.dataset) as judging:
                judging.read(args.rule, Path(args.labels))
        found: JudgedThreshold = answer(args, lake)
    if args.format == "table":
        print(
            f"{found.judged} judged pairs of a random sample; at most {args.wrong:.1%} wrong at {args.confidence:.0%}"
        )
    print_answer(args, found)
    return 0 if found.threshold is not None else 1


def _draw(args: Namespace, lake: OpenLake) -> int:
    """Draw a sample above the loosest candidate, and write it as CSV."""
    to = args.to or "labels.csv"
    with lake.judging(args.dataset) as judging:
        sample = judging.draw(args.rule, min(args.candidates, default=None))
        n = judging.write(sample, args.draw, Path(to))
    print(visible(
        f"{to}: {n} of {sample.population:,} pairs with {sample.quantity} >= {sample.threshold:g}, drawn at random. "
        "Write match, mismatch or unsure into the column verdict, then give the file to --labels."
    ))  # fmt: skip
    return 0


def print_threshold(found: "JudgedThreshold") -> None:
    """Print the tested thresholds, and the rule for the recipe: the threshold with the scorers that it is valid for."""
    print(f"{'threshold':>10}{'keeps':>10}{'labels':>8}{'wrong':>7}{'bound':>8}  {'outcome':<12}lacking")
    for each in found.candidates:
        lacking = f"{each.lacking} more without an error" if each.lacking else ""
        print(f"{each.threshold:>10.4g}{each.population:>10,}{each.labels:>8}{each.wrong:>7}{each.bound:>8.1%}  "
              f"{each.outcome:<12}{lacking}")  # fmt: skip
    if found.threshold is None:
        print("no threshold holds yet: judge as many more pairs as are lacking, then ask once more", file=sys.stderr)
    else:
        keep = f"{found.quantity} >= {found.threshold:.9g}"
        print(visible(f"{keep} holds"))
        bound = ", ".join(f"{name}: '{digest}'" for name, digest in found.scorers.items())
        with_scorers = f", scorers: {{{bound}}}" if bound else ""  # by another model the number means something else
        print(visible(f'rule    {{name: {found.rule}, keep: "{keep}"{with_scorers}}}'))
