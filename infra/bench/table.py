"""Write the tables of README.md from the results: ``python -m infra.bench.table``.

The tables have the figures that have a target. ``python -m infra.bench.table NAME`` prints every figure of a bench.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from infra.bench import gpu_table
from infra.bench.measure import RESULTS
from infra.generated import rewrite

README = Path(__file__).parent / "README.md"
BEGIN, END = "<!-- table: python -m infra.bench.table -->", "<!-- end of table -->"
# In the order of a run's stages. A bench without a result has the row "not run".
NAMES = (
    "decode",
    "clip",
    "sentences",
    "perplexity",
    "tags",
    "image_pass",
    "ingest",
    "listing",
    "fetch",
    "end_to_end",
    "cluster",
    "associate",
    "index_files",
    "duplicates",
    "near_sentences",
    "catalog",
    "catalog_30m",
    "commits",
    "nights",
    "fixed_cost",
    "browse",
    "answers",
    "prove",
    "prove_world",
    "soft_cap",
    "stage",
    "ray_operators",
    "feeders",
    "refill",
    "partitions",
)


def table(folder: Path = RESULTS) -> str:
    """Return the figures that have a target in Markdown, from the results in ``folder``."""
    lines = ["| seen | against | target |", "|---|---|---|"]
    for name in NAMES:
        path = folder / f"{name}.json"
        if not path.exists():
            lines.append(f"| **{name}** not run | | |")
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        if goals := [row for row in result["rows"] if row["target"]]:
            lines += [f"| **{name}** {_origin(result)} | | |", *map(_line, goals)]
    return "\n".join(lines)


def every_figure(name: str, folder: Path = RESULTS) -> str:
    """Return each figure of a bench with its note, its origin first. One line a figure."""
    result = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    lines = [f"{result['command']}: {_origin(result)}"]
    for row in result["rows"]:
        peer = f"; {row['peer_name']} {row['peer']:g}, {row['ratio']:g} x" if row["peer"] is not None else ""
        target = f"; target {row['target']}" if row["target"] else ""
        lines.append(f"{_seen(row)}{peer}{target}" + (f"; {row['note']}" if row["note"] else ""))
    return "\n".join(lines)


def _seen(row: dict) -> str:
    recall = f", recall {row['recall']:g}" if row["recall"] is not None else ""
    return f"{row['what']}: {row['ours']:g} {row['unit']}{recall}"


def _line(row: dict) -> str:
    against = "" if row["peer"] is None else f"{row['peer_name']} {row['peer']:g}: {row['ratio']:g} ×"
    target = row["target"].replace(">=", "≥").replace("<=", "≤")
    cells = (_seen(row), against, target + (", **not met**" if row["met"] is False else ""))
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _origin(result: dict) -> str:
    """Return a result's date, machine, load and minutes. A load above the number of cores slows every figure."""
    machine, minutes = result["machine"], result.get("seconds", 0) / 60
    took = f", {minutes:.1f} min" if minutes else ""
    cpu = "EPYC" if "EPYC" in machine["cpu"] else "Xeon" if "Xeon" in machine["cpu"] else machine["cpu"]
    return f"{result['date']}, {cpu} x {machine['cores']}, load {machine['load']}{took}"


def main() -> None:
    """Rewrite both tables of README.md, or print the figures of the benches that are named."""
    if sys.argv[1:]:
        print(*map(every_figure, sys.argv[1:]), sep="\n\n")
        return
    rewrite(README, BEGIN, END, table(), [])
    rewrite(README, gpu_table.BEGIN, gpu_table.END, gpu_table.table(), [])


if __name__ == "__main__":
    main()
