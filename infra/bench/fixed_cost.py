"""What each command costs before it does any work: statements, commits, CPU seconds and wall, by the user's CPUs.

Run as ``python -m infra.bench.fixed_cost [--documents N] [--checkout FOLDER] [--scratch FOLDER]``. Statements and
commits are counted in the command's own process, CPU seconds are those of its whole process tree. A small world is
generated, curated by two workers, curated again (nothing to do), cut anew and asked. With more than two CPUs the
process only believes to have them: what DuckDB's threads cost there. ``--checkout`` measures another checkout's code by
its own ``.venv``, turn by turn with this one's, and gives ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from infra.bench import tree
from infra.bench.measure import ROOT, Row, finish, parser

CPUS = (1, 2, 16, 64)
COUNTED = ROOT / "infra" / "bench" / "counted.py"
# By name: the words behind ``pairmill``, and the target in CPU s. A first run may take what its models do besides.
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "first run": (["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--workers", "2"], None),
    "idle run": (["run", "demo", "--source", "{pages}", "--lake", "{lake}"], 1.2),
    "re-cut": (
        ["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--set", "balance.cap=20"],
        4.0,
    ),
    "status": (["status", "--lake", "{lake}"], 1.3),
    "status with a recipe": (["status", "demo", "--source", "{pages}", "--lake", "{lake}"], 3.0),
    "why": (["why", "{image}", "--lake", "{lake}"], 1.2),
    "sql": (["sql", "SELECT count(*) FROM images", "--lake", "{lake}"], 0.6),
    "--help": (["--help"], 0.1),
}


class Checkout:
    """The code of one checkout, and its own lake of the world in ``pages``."""

    def __init__(self, root: Path, scratch: Path, pages: Path) -> None:
        self.root, self.scratch = root, scratch
        self.values = {"pages": str(pages), "lake": str(scratch / "lake"), "image": ""}
        scratch.mkdir(parents=True)

    def run(self, name: str, cpus: int) -> tuple[tree.Used, dict]:
        """Run a command, counted. The first run makes its lake anew."""
        if name == "first run":
            shutil.rmtree(self.values["lake"], ignore_errors=True)
        out = self.scratch / "counts.json"
        words = [word.format(**self.values) for word in COMMANDS[name][0]]
        command = [str(self.root / ".venv/bin/python"), "-P", str(COUNTED), str(out), *words]
        env = {**os.environ, "PYTHONPATH": str(self.root), "COUNTED_CPUS": str(cpus)}
        used = tree.run(command, self.scratch / "log", env=env)
        if name == "first run":
            self.values["image"] = self._an_image()
        return used, json.loads(out.read_text())

    def _an_image(self) -> str:
        asked = ["sql", "SELECT min(image_id) FROM pairs", "--lake", self.values["lake"], "--format", "csv"]
        command = [str(self.root / ".venv/bin/pairmill"), *asked]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.root).stdout.split()[-1]


def rows_of(name: str, cpus: int, ours: tuple[tree.Used, dict], theirs: tuple[tree.Used, dict] | None) -> Row:
    used, counts = ours
    note = f"{counts['duckdb']} + {counts['metadata']} statements, {counts['commits']} commits, {used.wall:.1f} s wall"
    if theirs:
        them = theirs[1]
        note += f"; there {them['duckdb']} + {them['metadata']}, {them['commits']}, {theirs[0].wall:.1f} s"
    target = COMMANDS[name][1] if cpus == 2 else None
    return Row(
        f"{name}, {cpus} CPUs", "CPU s", used.cpu,
        theirs[0].cpu if theirs else None, "other checkout" if theirs else "",
        theirs[0].cpu / used.cpu if theirs else None,
        target=f"<= {target} CPU s" if target else "", met=used.cpu <= target if target else None, note=note,
    )  # fmt: skip


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=72)
    options.add_argument("--checkout", type=Path, help="another checkout, set up by `make setup`, to compare with")
    options.add_argument("--cpus", type=int, nargs="+", default=CPUS)
    options.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "pairmill-fixed-cost")
    options = options.parse_args()
    shutil.rmtree(options.scratch, ignore_errors=True)
    try:
        finish("fixed_cost", measured(options), options)
    finally:
        shutil.rmtree(options.scratch, ignore_errors=True)


def measured(options: argparse.Namespace) -> list[Row]:
    """Run every command with every number of CPUs; the lake is that of the last first run."""
    world = options.scratch / "world"
    generate = [str(ROOT / ".venv/bin/python"), str(ROOT / "infra/demo/generate.py"), "--seed", "7"]
    subprocess.run([*generate, "--documents", str(options.documents), "--out", str(world)], check=True)
    ours = Checkout(ROOT, options.scratch / "ours", world / "pages")
    theirs = Checkout(options.checkout, options.scratch / "theirs", world / "pages") if options.checkout else None
    found = []
    for cpus in options.cpus:
        for name in COMMANDS:
            found.append(rows_of(name, cpus, ours.run(name, cpus), theirs.run(name, cpus) if theirs else None))
            print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    main()
