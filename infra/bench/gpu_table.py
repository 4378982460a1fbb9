"""Write the table of GPU rows in README.md: targets, and measured values or a note that nothing was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from infra.bench.gpu_all import OUT
from infra.bench.gpu_goals import GOALS, Goal

BEGIN, END = "<!-- GPU table: python -m infra.bench.table -->", "<!-- end of GPU table -->"


def table(path: Path = OUT) -> str:
    """Return the table in Markdown, from a results file."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    lines = ["| row | what | seen | of its bound | must reach | beside it | |", "|---|---|---|---|---|---|---|"]
    for row in dict.fromkeys(goal.row for goal in GOALS):
        found = known.get(row, {})
        seen = {measure["what"]: measure for measure in found.get("measures", [])}
        goals = [goal for goal in GOALS if goal.row == row]
        lines += [_line(goal, seen.pop(goal.what, None), found.get("error", "")) for goal in goals]
        lines += [_line(Goal(row, what, measure["unit"]), measure, "") for what, measure in seen.items()]
        if found.get("device"):
            lines.append(_origin(found))
    return "\n".join(lines)


def _line(goal: Goal, seen: dict[str, Any] | None, error: str) -> str:
    value, bound, verdict = "not measured" + (f": {error}" if error else ""), "", ""
    if seen:
        told = f" ({seen['note']})" if seen["note"] else ""
        value = seen["note"] if seen["value"] is None else f"{seen['value']:g} {seen['unit']}{told}"
        bound = f"{seen['share']:.2f} of {seen['bound']:g}" if seen["share"] is not None else ""
        verdict = {None: "", True: "met", False: "**not met**"}[seen["met"]]
    least = "" if goal.least is None else f"{goal.least:g} {goal.unit}"
    least = least if goal.share is None else f"{goal.share:g} of its bound"
    return f"| `{goal.row}` | {goal.what} | {value} | {bound} | {least} | {goal.reference} | {verdict} |"


def _origin(row: dict[str, Any]) -> str:
    ran = f"{row['date'][:10]}, {row['device']}, torch {row['torch']}, transformers {row['transformers']}"
    return f"| | *`{row['command']}`: {ran}, {row['seconds']:.0f} s* | | | | | |"
