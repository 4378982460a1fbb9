"""The frame of `takedown`, `forget` and `drop`: say what goes, ask, remove it, say what was done, write the report."""

import json
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError

YES = ("y", "yes")


def confirmed_removal(
    args: Namespace,
    going: Iterable[str],
    question: str,
    remove: Callable[[], dict[str, Any]],
    told: Callable[[dict[str, Any]], Iterable[str]],
    answers: tuple[str, ...] = YES,
) -> int:
    """Print what goes, then remove it if that is confirmed; print what was done, and write the report.

    Raises:
        PairmillError: The answer is another one, or nobody is there to ask.
    """
    for line in going:
        print(visible(line), flush=True)
    if args.dry_run:
        return 0
    if args.yes in (None, False):
        is_asked = sys.stdin.isatty()
        if is_asked:
            print(question, end=" ", flush=True)
        if not is_asked or sys.stdin.readline().strip().removesuffix(".").lower() not in answers:
            raise PairmillError("nothing was removed. Look at `--dry-run`, then add --yes.")
    report = remove()
    for line in told(report):
        print(visible(line), flush=True)
    if args.report:
        text = json.dumps(report, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        Path(args.report).write_text(text, encoding="utf-8")
        print(visible(f"report: {args.report}"))
    return 0


def erased(report: dict[str, Any]) -> Iterator[str]:
    """Say how the bytes of removed rows were erased, and what could not be reached."""
    done = report["erased"]
    yield (
        f"erased: {done['rewritten']:,} files rewritten, {done['removed']:,} removed, {done['snapshots']:,} snapshots "
        "expired; reports and caches are made again when asked for"
    )
    if done["why"]:
        yield f"catalog not rewritten: {done['why']}. Close what reads the lake, then run `pairmill maintain`."
    for place in report["not_reached"]:
        yield f"not reached: {place}"
