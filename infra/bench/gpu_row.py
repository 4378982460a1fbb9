"""Measure one row of the GPU benches: ``python -m infra.bench.gpu_row NAME --size real|toy --out FILE``.

Each row has its own process, so that compiled code, broken devices and memory end with it. FILE is written after each
measure, so that a crash loses none.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from infra.bench.gpu_goals import Goal, goal


@dataclass(frozen=True)
class Seen:
    """One measure. ``bound`` is the upper bound of ``value``; ``value`` is None if ``note`` says why it is missing."""

    what: str
    unit: str
    value: float | None
    bound: float | None = None
    note: str = ""


def row_of(name: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Start a row of ROWS: call its module's ``measure`` with the argument, the size and all known rows."""
    from infra.bench.gpu_all import ROWS

    module, _, argument = next(row.made_by for row in ROWS if row.name == name).partition(":")
    return import_module(f"infra.bench.{module}").measure(argument, size, known)


def value_of(known: dict[str, Any], row: str, what: str, size: str) -> float | None:
    """Return a measure of another row on this device and size, or None if it is missing."""
    found = known.get(row, {})
    if (found.get("device"), found.get("size")) != (machine()["device"], size):
        return None
    return next((measure["value"] for measure in found["measures"] if measure["what"] == what), None)


def as_data(seen: Seen) -> dict[str, Any]:
    """Return the measure as a dict, with its share of its bound."""
    data = {name: _short(getattr(seen, name)) for name in ("what", "unit", "value", "bound", "note")}
    data["share"] = _short(seen.value / seen.bound) if seen.value is not None and seen.bound else None
    return data


def machine() -> dict[str, Any]:
    """Return the device's name and the versions of Python, torch and transformers."""
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else f"no GPU ({platform.machine()})"
    found = {"device": card, "python": platform.python_version()}
    return found | {"torch": version("torch"), "transformers": version("transformers")}


def main() -> None:
    """Measure one row of the GPU benches; write ``--out`` after each measure, so that a kill loses one."""
    parser = argparse.ArgumentParser(description="Measure one row of the GPU benches.")
    parser.add_argument("name")
    parser.add_argument("--size", choices=("real", "toy"), default="real")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--known", type=Path, help="file of the rows that stand, with which some compare")
    options = parser.parse_args()
    started = time.perf_counter()
    import torch

    # As in a run's workers. With 16 threads an operation, eight feeders are 128 threads on 16 CPUs.
    torch.set_num_threads(1)
    from pairmill.ops.models.device.run_notes import take

    known = json.loads(options.known.read_text()) if options.known and options.known.exists() else {}
    row: dict[str, Any] = {"size": options.size, **machine(), "date": datetime.now(UTC).isoformat(timespec="seconds")}
    row |= {"command": f"python -m infra.bench.gpu_row {options.name} --size {options.size}", "measures": []}
    for seen in row_of(options.name, options.size, known):
        row["measures"].append(as_data(seen))
        row["seconds"] = round(time.perf_counter() - started, 1)
        options.out.write_text(json.dumps(row))
        print(_line(row["measures"][-1], goal(options.name, seen.what, seen.unit)), flush=True)
    row["notes"] = list(take())
    options.out.write_text(json.dumps(row))
    for each in row["notes"]:
        print(f"  note: {each}", flush=True)
    os._exit(0)  # a process with a broken device may abort in its exit handlers


def _line(measure: dict[str, Any], wanted: Goal) -> str:
    if measure["value"] is None:
        return f"  {measure['what']}: {measure['note']}"
    line = f"  {measure['what']}: {measure['value']:g} {measure['unit']}"
    if measure["bound"]:
        line += f", {measure['share']:.2f} of the bound {measure['bound']:g}"
    line += f", must reach {target}" if (target := wanted.target()) else ""
    return line + (f" ({measure['note']})" if measure["note"] else "")


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
