"""Write the tables of README.md from the results: ``python -m infra.bench.table``."""

from __future__ import annotations

import json
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
    "duplicates",
    "near_sentences",
    "catalog",
    "catalog_30m",
    "commits",
    "nights",
    "fixed_cost",
    "browse",
    "answers",
    "stage",
    "ray_operators",
    "feeders",
    "partitions",
)


def table(folder: Path = RESULTS) -> str:
    """Return the table in Markdown, from the results in ``folder``."""
    lines = ["| bench | what | seen | against | target | |", "|---|---|---|---|---|---|"]
    for name in NAMES:
        path = folder / f"{name}.json"
        if not path.exists():
            lines.append(f"| `{name}` | | not run | | | |")
            continue
        result = json.loads(path.read_text(encoding="utf-8"))
        lines += [_line(name, row) for row in result["rows"]]
        lines.append(_origin(name, result))
    return "\n".join(lines)


def _line(name: str, row: dict) -> str:
    against = ""
    if row["peer"] is not None:
        against = f"{row['peer_name']} {row['peer']:g}: {row['ratio']:g} ×"
    seen = f"{row['ours']:g} {row['unit']}" + (f", recall {row['recall']:g}" if row["recall"] is not None else "")
    seen += f" ({row['note']})" if row["note"] else ""
    verdict = {None: "", True: "met", False: "**not met**"}[row["met"]]
    target = row["target"].replace(">=", "≥").replace("<=", "≤")
    cells = (f"`{name}`", row["what"], seen, against, target, verdict)
    return "| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |"


def _origin(name: str, result: dict) -> str:
    """Return the row on a result's origin: command, date, machine, load and minutes.

    A load above the number of cores slows every figure.
    """
    machine, minutes = result["machine"], result.get("seconds", 0) / 60
    took = f", {minutes:.1f} min" if minutes else ""
    cpu = machine["cpu"].replace("(R)", "").replace(" Processor", "")
    ran = f"{result['date']}, {machine['cores']} cores of {cpu} at load {machine['load']}{took}"
    return f"| | *`{result['command']}`: {ran}* | | | | |"


def main() -> None:
    """Rewrite both tables of README.md."""
    rewrite(README, BEGIN, END, table(), [])
    rewrite(README, gpu_table.BEGIN, gpu_table.END, gpu_table.table(), [])


if __name__ == "__main__":
    main()
