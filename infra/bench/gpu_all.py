"""Run every GPU bench that fits a time budget: ``python -m infra.bench.gpu_all --budget 540``.

Rows whose result is already in ``--out`` are skipped (``--again`` measures them anew), so that three calls of ten
minutes measure everything. A row starts if its estimate fits the time left, and is killed after twice its estimate.
``--size toy`` rehearses all rows on a CPU. It needs only torch, transformers, numpy, Pillow and safetensors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OUT = Path(__file__).parent / "results" / "gpu.json"
TOY_SECONDS = 15  # of any row at toy size


@dataclass(frozen=True)
class Row:
    """One row to measure.

    ``seconds`` is estimated for an H200; ``made_by`` is 'module:argument' of infra.bench; ``after`` names the row to
    compare with, which must run first.
    """

    name: str
    seconds: int
    made_by: str
    after: str = ""


# The dearest rows first, so that three calls of nine minutes hold them all. A row follows the one it compares with.
ROWS = (
    Row("caption_17b_1225", 220, "gpu_caption:17b_1225"),
    Row("run_internvl", 160, "gpu_refill:internvl"),
    Row("clip_stage", 160, "gpu_clip:stage"),
    Row("caption_17b_256", 150, "gpu_caption:17b_256"),
    Row("run_qwen", 110, "gpu_refill:qwen"),
    Row("caption_7b", 110, "gpu_caption:7b"),
    Row("clip_eva", 100, "gpu_clip:eva"),
    Row("caption_7b_plain", 100, "gpu_plain:7b", "caption_7b"),
    Row("run_smolvlm", 90, "gpu_refill:smolvlm"),
    Row("repeat", 80, "gpu_faults:repeat"),
    Row("clip_model", 70, "gpu_clip:model"),
    Row("run_fuser", 60, "gpu_refill:fuser"),
    Row("memory", 50, "gpu_faults:memory"),
    Row("perplexity", 50, "gpu_perplexity:"),
    Row("broken", 40, "gpu_faults:broken"),
    Row("ceilings", 30, "gpu_clip:ceilings"),
)


def stands(known: dict[str, Any], name: str, size: str) -> bool:
    """Return whether the earlier results ``known`` hold every figure of this bench row at this size.

    A row is incomplete if it failed, or if one of its measures was not taken, unless a library is still absent.
    """
    row = known.get(name)
    if row is None or row["size"] != size or row["error"]:
        return False
    left = [measure["note"] for measure in row["measures"] if measure["note"].startswith("not measured")]
    absent = [re.fullmatch(r"not measured: (\w+) is absent", note) for note in left]
    return all(found is not None and find_spec(found[1]) is None for found in absent)


def run(row: Row, size: str, limit: float, known: Path) -> dict[str, Any]:
    """Measure a row in a process of its own, which is killed with its children after ``limit`` seconds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "row.json"
        words = [sys.executable, "-m", "infra.bench.gpu_row", row.name, "--size", size]
        words += ["--out", str(out), "--known", str(known.absolute())]
        process = subprocess.Popen(words, cwd=ROOT, start_new_session=True)
        try:
            code = process.wait(limit)
            error = f"ended with code {code}" if code else ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            error = f"not done after {limit:.0f} s"
        found = json.loads(out.read_text()) if out.exists() else {"size": size, "measures": []}
    return found | {"error": error}


def write(path: Path, known: dict[str, Any]) -> None:
    """Replace the results file atomically: a kill leaves the previous file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".part")
    whole.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    whole.replace(path)


def main() -> None:
    """Measure the rows that fit the budget, and print those left for another call."""
    options = _options()
    ends = time.monotonic() + options.budget
    known = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    left: list[str] = []
    for row in ROWS:
        if options.only and row.name not in options.only:
            continue
        if stands(known, row.name, options.size) and not options.again:
            continue
        room = ends - time.monotonic()
        # A rehearsal runs on any machine beside anything: its budget alone ends a row.
        estimate, most = (row.seconds, 2 * row.seconds) if options.size == "real" else (TOY_SECONDS, room)
        if estimate > room or (row.after and row.after not in known):
            left.append(row.name)
            continue
        print(f"--- {row.name}", flush=True)
        known[row.name] = run(row, options.size, min(most, room), options.out)
        write(options.out, known)
        if known[row.name]["error"]:
            print(f"  {known[row.name]['error']}", flush=True)
            left.append(row.name)
    print(f"left for another call: {', '.join(left)}" if left else "every row stands")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--budget", type=float, default=540, help="seconds, within which rows are begun and ended")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--size", choices=("real", "toy"), default="real")
    parser.add_argument("--again", action="store_true", help="measure what stands anew")
    parser.add_argument("--only", nargs="*", metavar="ROW", help="these rows alone")
    options = parser.parse_args()
    if options.size == "toy" and options.out == OUT:
        parser.error("--size toy needs --out FILE: a rehearsal is no result")
    return options


if __name__ == "__main__":
    main()
