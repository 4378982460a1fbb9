"""Benchmark a whole run over the demo world at ten times its size: the share of the machine's time spent in ops.

Run as ``python -m infra.bench.end_to_end [--documents N] [--small N] [--scratch FOLDER]``. The figure is (CPU seconds
of the ops run bare) / (cores x wall of the whole run). Both are differences between a large and a small world, which
removes the start-up time. "Bare" runs the same jobs in as many processes with nothing else running. On a shared machine
the second figure says more: the ops' CPU seconds over those of the process tree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from itertools import product
from pathlib import Path

from infra.bench import tree
from infra.bench.measure import ROOT, Row, finish, parser


def generate(folder: Path, documents: int, cores: int) -> list[str]:
    """Generate one world per core, side by side, of ``documents`` in all; return the folders of their pages."""
    worlds = [folder / str(n) for n in range(cores)]
    script = [sys.executable, str(ROOT / "infra" / "demo" / "generate.py")]
    each = ["--documents", str(documents // cores)]
    running = [
        subprocess.Popen([*script, "--seed", str(7 + n), *each, "--out", world]) for n, world in enumerate(worlds)
    ]
    if any([process.wait() for process in running]):
        sys.exit("the demo world could not be generated; what the generator said stands above")
    return [str(world / "pages") for world in worlds]


def run(scratch: Path, how: str, sources: list[str]) -> tuple[tree.Used, dict]:
    """Curate the sources in a new process, ``how`` being "bare" or "pool"; return its resource use and its report."""
    lake, out = scratch / "lake", scratch / "out.json"
    shutil.rmtree(lake, ignore_errors=True)
    used = tree.run(
        [sys.executable, "-m", "infra.bench.peers.curate_pass", how, str(lake), str(out), *sources],
        scratch / f"{how}.log",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return used, json.loads(out.read_text())


def profile(bare: tuple[dict, dict], pool: tuple[dict, dict], cores: int) -> list[dict]:
    """Return per step, large minus small: ops' CPU, the flow process's CPU, wall, and the ops' share of the cores."""
    found = []
    for step in pool[1]["steps"]:
        less = {
            "ops": bare[1]["ops"].get(step, 0.0) - bare[0]["ops"].get(step, 0.0),
            "flow_cpu": pool[1]["steps"][step]["cpu"] - pool[0]["steps"][step]["cpu"],
            "wall": pool[1]["steps"][step]["wall"] - pool[0]["steps"][step]["wall"],
        }
        share = less["ops"] / (cores * less["wall"]) if less["wall"] > 0 else 0.0
        found.append({"step": step, "share": round(share, 3)} | {key: round(value, 2) for key, value in less.items()})
    return found


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--documents", type=int, default=6_400)
    options.add_argument("--small", type=int, default=160, help="documents of the world whose time is taken off")
    options.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "pairmill-end-to-end")
    options = options.parse_args()
    cores = len(os.sched_getaffinity(0))
    scratch = options.scratch
    shutil.rmtree(scratch, ignore_errors=True)
    try:
        used, said = {}, {}
        worlds = {n: generate(scratch / f"world-{n}", n, cores) for n in (options.small, options.documents)}
        for how, size in product(("bare", "pool"), worlds):
            used[how, size], said[how, size] = run(scratch, how, worlds[size])
            print(f"{how}, {size} documents: {used[how, size]}", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    small, large = options.small, options.documents
    ops = sum(said["bare", large]["ops"].values()) - sum(said["bare", small]["ops"].values())
    wall = used["pool", large].wall - used["pool", small].wall
    cpu = used["pool", large].cpu - used["pool", small].cpu
    share = ops / (cores * wall)
    rows = [
        Row("ops of the whole run", "CPU s", ops, cores * wall, f"{cores} cores x wall", share,
            target=">= 0.8 of cores x wall", met=share >= 0.8, note="one round"),
        Row("the same over the whole tree's CPU", "CPU s", ops, cpu, "CPU of the run", ops / cpu),
    ]  # fmt: skip
    steps = profile((said["bare", small], said["bare", large]), (said["pool", small], said["pool", large]), cores)
    for each in steps:
        print(each)
    finish("end_to_end", rows, options, steps=steps)


if __name__ == "__main__":
    main()
