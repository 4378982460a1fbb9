"""Write README.md's table of GPU rows, and print the price of captions: ``python -m infra.bench.gpu_table DOLLARS``.

DOLLARS is the price of one card for an hour.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.bench.gpu_all import OUT
from infra.bench.gpu_goals import GOALS, Goal, goal

BEGIN, END = "<!-- GPU table: python -m infra.bench.table -->", "<!-- end of GPU table -->"
# Measures that count captions, and those of texts without pictures.
CAPTIONS = ("captions", "captions from JPEG bytes", "fused texts")


def table(path: Path = OUT) -> str:
    """Return the measures that have a goal in Markdown, from a results file: one line a goal and card."""
    lines = ["| row | card | seen | of its bound | must reach |", "|---|---|---|---|---|"]
    for row in dict.fromkeys(each.row for each in GOALS):
        missing = [each for each in GOALS if each.row == row]
        for found in _rows(path, row):
            for measure in found["measures"]:
                wanted = goal(row, measure["what"], measure["unit"])
                if wanted.target() and measure["value"] is not None:
                    lines.append(_line(wanted, measure, found["device"].removeprefix("NVIDIA ").partition(" ")[0]))
                    missing = [each for each in missing if each != wanted]
        lines += [_line(each, None, "") for each in missing]
    return "\n".join(lines)


def costs(path: Path = OUT, price: float | None = None) -> list[str]:
    """Return the table of texts an hour and hours a million texts on one card, and of dollars at a ``price`` an hour.

    A rate that a row repeats, of the same texts prepared before, is left out.
    """
    lines = ["| texts by one card | card | an hour | hours a million |", "|---|---|--:|--:|"]
    if price is not None:
        lines = [f"{lines[0]} dollars a million, at {price:g} an hour |", f"{lines[1]}--:|"]
    for row in dict.fromkeys(each.row for each in GOALS):
        for found in _rows(path, row):
            for measure in found["measures"]:
                if measure["what"] in CAPTIONS and measure["value"]:
                    hours = 1e6 / measure["value"] / 3600
                    dollars = "" if price is None else f" {hours * price:,.2f} |"
                    name = f"`{row}`: {measure['what']}"
                    lines.append(f"| {name} | {found['device']} | {1e6 / hours:,.0f} | {hours:,.2f} |{dollars}")
    return lines


def _rows(path: Path, name: str) -> Iterator[dict[str, Any]]:
    """Yield the measures of a row on each card; the last card's are stored as NAME, others as 'NAME on CARD'."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    yield from (found for key, found in known.items() if key.partition(" on ")[0] == name and found["measures"])


def _line(goal: Goal, seen: dict[str, Any] | None, card: str) -> str:
    value, bound, target = "not measured", "", goal.target()
    if seen:
        value = f"{seen['value']:g} {seen['unit']}"
        bound = f"{seen['share']:.2f} of {seen['bound']:g}" if seen["share"] is not None else ""
        target += "" if goal.is_met(seen["value"], seen["share"]) else ", **not met**"
    return f"| `{goal.row}` {goal.what} | {card} | {value} | {bound} | {target} |"


if __name__ == "__main__":
    print(*costs(price=float(sys.argv[1])), sep="\n")
