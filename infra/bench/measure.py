"""Provide what all benches share: CPU and wall seconds of interleaved rounds, a result file and a JSON line.

Rates are a CPU second, because machines are shared. Every process of a bench uses one thread, so that CPU seconds of
all contenders are comparable. A ratio is taken from rounds of one run only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "infra" / "bench" / "results"
STARTED = time.perf_counter()
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
LIBRARIES = (
    "numpy",
    "torch",
    "torchvision",
    "pillow",
    "simplejpeg",
    "imagehash",
    "open_clip_torch",
    "transformers",
    "faiss-cpu",
    "scipy",
    "duckdb",
    "pyarrow",
    "ray",
)


@dataclass(frozen=True)
class Row:
    """One line of the table: ``ours`` and ``peer`` in ``unit``, their ratio (more is better), and the target."""

    what: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    ratio: float | None = None
    recall: float | None = None
    target: str = ""
    met: bool | None = None
    note: str = ""


@dataclass(frozen=True)
class Seconds:
    """Seconds of one round; ``cpu`` includes this process and its children that have ended."""

    cpu: float
    wall: float


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return the parser of the options that every bench has.

    Restarts the process with one thread a library if it has more.
    """
    if any(os.environ.get(name) != value for name, value in ONE_THREAD.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **ONE_THREAD})
    found = argparse.ArgumentParser(description=(description or "").split("\n\n")[0])
    found.add_argument("--rounds", type=int, default=3, help="interleaved rounds, of which the median is told")
    found.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    found.set_defaults(commit=commit())  # read now: the code may have changed by the end of a long bench
    return found


def timed(work: Callable[[], object]) -> Seconds:
    """Run ``work`` once; return its CPU and wall seconds."""
    cpu, wall = _cpu(), time.perf_counter()
    work()
    return Seconds(_cpu() - cpu, time.perf_counter() - wall)


def interleaved(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[Seconds]]:
    """Run each contender once a round, in alternation, so that a busy minute affects all of them."""
    found: dict[str, list[Seconds]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, work in contenders.items():
            found[name].append(timed(work))
    return found


def cpu(rounds: list[Seconds]) -> float:
    """Return the median CPU seconds."""
    return statistics.median(each.cpu for each in rounds)


def wall(rounds: list[Seconds]) -> float:
    """Return the median wall seconds."""
    return statistics.median(each.wall for each in rounds)


def ratio(slow: list[Seconds], fast: list[Seconds]) -> float:
    """Return how many times less CPU ``fast`` took: the median of the ratios of each round."""
    return statistics.median(s.cpu / f.cpu for s, f in zip(slow, fast, strict=True))


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return e of seconds ~ size ** e, fitted by least squares on logarithms."""
    import numpy as np

    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def peak_mb() -> float:
    """Return the peak resident memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def finish(name: str, rows: list[Row], options: argparse.Namespace, **more: object) -> None:
    """Print the rows, write ``NAME.json``, and print one JSON line; the first row is the headline."""
    told = dict(vars(options))
    rows = [Row(**{key: _short(value) for key, value in asdict(row).items()}) for row in rows]
    for row in rows:
        print(_line(row))
    head = rows[0]
    line = {"name": name, "ours": head.ours, "peer": head.peer, "ratio": head.ratio}
    line |= {} if head.recall is None else {"recall": head.recall}
    whole = line | {"unit": head.unit, "rows": [asdict(row) for row in rows]} | more
    whole |= {"machine": machine(), "versions": versions(), "date": date.today().isoformat()}
    whole |= {"commit": told.pop("commit"), "command": command(name, sys.argv[1:])}
    whole["seconds"] = round(time.perf_counter() - STARTED)
    whole["options"] = {key: value for key, value in told.items() if isinstance(value, (int, float, str))}
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"{name}.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(line))


def machine() -> dict[str, object]:
    """Return the CPU model, the cores available to this process, memory in GB, and the current load."""
    models = [line.split(":", 1)[1].strip() for line in _read("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    load = round(os.getloadavg()[0], 1)
    cores = len(os.sched_getaffinity(0))
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": cores,
        "memory_gb": round(memory),
        "load": load,
    }


def command(name: str, words: list[str]) -> str:
    """Return the command as typed, with this machine's folders replaced by FOLDER."""
    return " ".join([f"python -m infra.bench.{name}", *("FOLDER" if "/" in word else word for word in words)])


def commit() -> str:
    """Return the commit of the code; '' if files differ from it, or if this is no git repository."""
    but = [f":(exclude){path}" for path in ("infra/bench/results", "*.md")]
    try:
        changed = _git("status", "--porcelain", "--", ".", *but)
        return "" if changed else _git("rev-parse", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], check=True, capture_output=True, text=True).stdout.strip()


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _line(row: Row) -> str:
    parts = [f"{row.what}: {row.ours:g} {row.unit}"]
    if row.peer is not None:
        parts.append(f"{row.peer_name} {row.peer:g}, ratio {row.ratio:g}")
    if row.recall is not None:
        parts.append(f"recall {row.recall:g}")
    if row.target:
        verdict = "" if row.met is None else (" (met)" if row.met else " (NOT met)")
        parts.append(f"target {row.target}{verdict}")
    return "; ".join([*parts, row.note] if row.note else parts)


def _short(value: object) -> object:
    return float(f"{value:.4g}") if isinstance(value, float) else value


def _read(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def _cpu() -> float:
    """Return the CPU seconds of this process and of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime
