"""Compare forecasts with what came: ``python -m infra.bench.preflight --seeds 10``.

For each seed a world is made, `preflight` forecasts a run from a sample of its pictures, and the run is done. A
forecast is right if what came lies inside its 90 % interval. The recipe generates no texts, so that a seed takes less
than a minute of CPU; its thresholds are set so that every rule drops something.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from infra.bench.measure import ROOT, Row, finish, parser
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.losses.unit_outcomes import written_bytes
from pairmill.catalog.recipe.recipe import Recipe, validate
from pairmill.flows.curate import curate_steps
from pairmill.flows.preflight.cost_forecast import Measured
from pairmill.flows.preflight.preflight import Preflight, preflight
from pairmill.flows.run.run_start import check_run, session_on
from pairmill.flows.run.settings import Compute
from pairmill.ops.whole.cluster_sample import Range

TARGET = 0.8  # of the seeds, for each quantity
RECIPE = {
    "name": "forecast",
    "models": {"clip": f"open_clip:local-dir:{ROOT}/infra/demo/models/clip"},
    "images": [
        {"name": "short_side", "keep": "least(width, height) >= 100"},
        {"name": "aspect_ratio", "keep": "greatest(width, height) <= 3 * least(width, height)"},
        {"name": "sharp", "keep": "sharpness >= 108"},
        {"name": "clip_filter", "keep": "best_similarity >= 0.52"},
    ],
    "sentences": [{"name": "no_url", "keep": "not has_url"}, {"name": "boilerplate", "keep": "not is_boilerplate"}],
    "duplicates": {"phash": 4, "cosine": 0.97, "clusters": 1000},
    "association": {"clusters": 64, "per_cluster": 40, "probes": 6, "top_k": 3},
    "balance": {"clusters": 1000, "per_cluster": 40, "cap": 35},
    "decoding": {"side": 128},
}


def main() -> None:
    """Forecast and run each seed, and write how often each quantity was inside its interval."""
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=10)
    options.add_argument("--first", type=int, default=21, help="the first seed")
    options.add_argument("--documents", type=int, default=160)
    options.add_argument("--sample", type=int, default=250, help="pictures of a sample")
    given = options.parse_args()
    told = [compared(seed, given) for seed in range(given.first, given.first + given.seeds)]
    finish("preflight", _rows(told, given), given, seeds_told=told)


def compared(seed: int, given: argparse.Namespace) -> dict[str, Any]:
    """Return for one seed each quantity's (low, forecast, high, what came)."""
    recipe = validate(RECIPE, "forecast")
    compute = Compute.model_validate({"workers": 2})
    with tempfile.TemporaryDirectory() as place:
        world = Path(place) / "world"
        size = ("--seed", str(seed), "--documents", str(given.documents), "--out", str(world))
        subprocess.run([sys.executable, ROOT / "infra/demo/generate.py", *size], check=True, capture_output=True)
        source = str(world / "pages")
        found = preflight(recipe, [source], f"{place}/lake", compute, given.sample)
        with create_or_open(f"{place}/lake") as lake:
            came = _came(lake, recipe, source, compute)
    told = {name: [each.low, each.value, each.high, came[name]] for name, each in _forecast(found).items()}
    print(seed, {name: [round(each, 4) for each in numbers] for name, numbers in told.items()}, flush=True)
    return {"seed": seed, "sampled": found.pictures, "share": found.share, "quantities": told}


def _forecast(found: Preflight) -> dict[str, Range]:
    """Return the ranges of a forecast by quantity."""
    steps = {f"dropped by {each.rule}": each.dropped for each in found.yields.steps}
    costs = {"worker-hours": found.costs.worker_hours, "gigabytes": found.costs.gigabytes}
    return {"pairs": found.yields.pairs, "pictures": found.yields.pictures, **steps, **costs}


def _came(lake: Lake, recipe: Recipe, source: str, compute: Compute) -> dict[str, float]:
    """Run the recipe, and return each quantity."""
    uris, checked = check_run(recipe, [source], compute)
    measured = Measured()
    with session_on(lake, checked, compute, "curate", uris) as session:
        session.observe(measured)
        made = curate_steps(session, measured.run_step)
    dataset = datasets.find(lake, f"{made.name}@{made.version}")
    steps = [step for step in datasets.funnel(lake, dataset) if step.kind == "image"]
    seconds = sum(item.seconds for items in measured.items.values() for item in items)
    drops = {f"dropped by {step.rule}": step.n_dropped for step in steps}
    whole = {"pairs": made.n_pairs, "pictures": steps[0].n_in}
    return {**whole, **drops, "worker-hours": seconds / 3600, "gigabytes": sum(written_bytes(lake)) / 1e9}


def _rows(told: list[dict[str, Any]], given: argparse.Namespace) -> list[Row]:
    """Return a row for each quantity: in how many seeds what came was inside."""
    inside: Counter[str] = Counter()
    widths: dict[str, list[float]] = {}
    for each in told:
        for name, (low, value, high, came) in each["quantities"].items():
            inside[name] += low <= came <= high
            widths.setdefault(name, []).append((high - low) / 2 / max(came, 1e-9))
            widths.setdefault(f"{name} off", []).append(abs(value - came) / max(came, 1e-9))
    rows = []
    for name in told[0]["quantities"]:
        # The seconds of a shared machine are no property of the forecast.
        is_judged = name != "worker-hours"
        note = f"half interval {_median(widths[name]):.0%}, error {_median(widths[f'{name} off']):.0%} of what came"
        rows.append(
            Row(f"{name}, {given.sample} of some {6 * given.documents} pictures", f"of {len(told)} seeds inside",
                inside[name], target=f">= {TARGET * len(told):g}" if is_judged else "",
                met=inside[name] >= TARGET * len(told) if is_judged else None, note=note)
        )  # fmt: skip
    return rows


def _median(values: list[float]) -> float:
    """Return the middle value."""
    return sorted(values)[len(values) // 2]


if __name__ == "__main__":
    main()
