"""Benchmark the fixed cost of each command, before any work: statements, commits, CPU seconds and wall, by CPUs.

Run as ``python -m infra.bench.fixed_cost [--documents N] [--checkout FOLDER] [--scratch FOLDER]``. Statements and
commits are counted in the command's own process; CPU seconds are those of its process tree. The bench generates a small
world, curates it with two workers, curates it again (nothing to do), re-cuts it and queries it; then it curates and
captions single pictures. Commands run on the first CPUs, by affinity. With more CPUs than the machine has, the process
is made to see them: this measures the cost of DuckDB's threads there. ``--checkout`` also measures the code of another
checkout, with that checkout's ``.venv``, in alternation with this one, and reports ratios.
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
# Name to arguments of ``pairmill`` and target in CPU s. A first run has no target: its models work too.
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "first run": (["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--workers", "2"], None),
    # The first run's words: one of other workers is asked something else, and goes through all steps.
    "idle run": (["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--workers", "2"], 1.2),
    "re-cut": (
        ["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--set", "balance.cap=20"],
        4.0,
    ),
    "status": (["status", "--lake", "{lake}"], 1.3),
    "dry run": (["run", "demo", "--source", "{pages}", "--lake", "{lake}", "--dry-run"], 3.0),
    "why": (["why", "{image}", "--lake", "{lake}"], 1.2),
    "sql": (["sql", "SELECT count(*) FROM images", "--lake", "{lake}"], 0.6),
    "--help": (["--help"], 0.1),
    # Each begins with a lake of its own; the caption is one more picture of the same lake.
    "one picture": (["run", "folder", "--models", "demo", "--source", "{one}", "--lake", "{lake}-one"], 8.0),
    "one caption": (["recaption", "demo", "--source", "{one}", "--lake", "{lake}-captions"], None),
    "one more caption": (["recaption", "demo", "--source", "{other}", "--lake", "{lake}-captions"], 6.0),
    "26 blocked addresses": (
        ["run", "30m", "--models", "demo", "--allow-empty", "--source", "{list}", "--lake", "{lake}-blocked"],
        5.0,
    ),
}
NEW_LAKES = {"first run": "", "one picture": "-one", "one caption": "-captions", "26 blocked addresses": "-blocked"}


class Checkout:
    """Code of one checkout, with its own lake of the world."""

    def __init__(self, root: Path, scratch: Path, sources: dict[str, str]) -> None:
        self.root, self.scratch = root, scratch
        self.values = {**sources, "lake": str(scratch / "lake"), "image": ""}
        scratch.mkdir(parents=True)

    def run(self, name: str, cpus: int) -> tuple[tree.Used, dict]:
        """Run a command and count its statements; those of NEW_LAKES begin with a new lake."""
        if name in NEW_LAKES:
            shutil.rmtree(self.values["lake"] + NEW_LAKES[name], ignore_errors=True)
        out = self.scratch / "counts.json"
        words = [word.format(**self.values) for word in COMMANDS[name][0]]
        command = [str(self.root / ".venv/bin/python"), "-P", str(COUNTED), str(out), *words]
        if name == "--help":  # it opens no lake, and counting imports DuckDB, for 0.1 s
            command = [str(self.root / ".venv/bin/pairmill"), *words]
            out.write_text(json.dumps({"duckdb": 0, "metadata": 0, "commits": 0}))
        if cpus <= len(os.sched_getaffinity(0)):
            command = ["taskset", "--cpu-list", f"0-{cpus - 1}", *command]
        # With the package's bytecode, as an installed package has it, whatever an image for containers says.
        env = {**os.environ, "PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "", "COUNTED_CPUS": str(cpus)}
        used = tree.run(command, self.scratch / "log", env=env)
        if name == "first run":
            self.values["image"] = self._an_image()
        return used, json.loads(out.read_text())

    def _an_image(self) -> str:
        """Return the smallest image id in the published pairs."""
        asked = ["sql", "SELECT min(image_id) FROM pairs", "--lake", self.values["lake"], "--format", "csv"]
        command = [str(self.root / ".venv/bin/pairmill"), *asked]
        return subprocess.run(command, check=True, capture_output=True, text=True, cwd=self.root).stdout.split()[-1]


def rows_of(name: str, cpus: int, ours: tuple[tree.Used, dict], theirs: tuple[tree.Used, dict] | None) -> Row:
    """Return the row of one command, with a ratio if another checkout was measured."""
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
    """Run the bench and write its result."""
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
    """Run every command with every number of CPUs; later commands use the lake of the latest first run."""
    world = options.scratch / "world"
    generate = [str(ROOT / ".venv/bin/python"), str(ROOT / "infra/demo/generate.py"), "--seed", "7"]
    subprocess.run([*generate, "--documents", str(options.documents), "--out", str(world)], check=True)
    sources = {"pages": str(world / "pages")} | _small_sources(options.scratch, world / "pages")
    ours = Checkout(ROOT, options.scratch / "ours", sources)
    theirs = Checkout(options.checkout, options.scratch / "theirs", sources) if options.checkout else None
    found = []
    for cpus in options.cpus:
        for name in COMMANDS:
            found.append(rows_of(name, cpus, ours.run(name, cpus), theirs.run(name, cpus) if theirs else None))
            print(found[-1], flush=True)
    return found


def _small_sources(scratch: Path, pages: Path) -> dict[str, str]:
    """Make a page with one picture, another with a second picture beside it, and a list of addresses on loopback."""
    pictures = sorted(pages.rglob("*.jpg"))[:2]
    for name, shown in (("one", pictures[:1]), ("other", pictures)):
        (scratch / name).mkdir()
        for number, picture in enumerate(shown):
            shutil.copy(picture, scratch / name / f"{number}.jpg")
            text = "<p>A wooden bridge crosses the small river near the old mill.</p>"
            page = f"<html><body>{text}<img src='{number}.jpg' alt='A bridge.'></body></html>"
            (scratch / name / f"{number}.html").write_text(page)
    addresses = [f"http://127.0.0.1:{9000 + n}/picture-{n}.jpg,a picture" for n in range(26)]
    (scratch / "list.csv").write_text("\n".join(["url,text", *addresses]) + "\n")
    return {"one": str(scratch / "one"), "other": str(scratch / "other"), "list": str(scratch / "list.csv")}


if __name__ == "__main__":
    main()
