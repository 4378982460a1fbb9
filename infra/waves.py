"""Simulate what text generation in waves costs at RealSyn's size: ``python -m infra.waves`` writes results/waves.json.

A simulated world has clusters of pictures in hash order; each picture passes the filter on generated text or not. A
wave requests texts where a cluster has fewer passing pictures than its cap; the next wave knows the answers. Cluster
sizes are fitted to what RealSyn's three caps keep of 168.3M passing pictures. How much a cluster's pass rate differs
from the mean is unknown, so it is drawn from a Beta of several concentrations: the smaller the concentration, the more
alike the pictures of one cluster are.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import product
from pathlib import Path
from statistics import NormalDist

import numpy as np

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT.parent))

from infra.bench import measure  # noqa: E402

PICTURES, PASSING, CLUSTERS = 198e6, 168.3e6, 1e6
KEPT = {20: 15.24e6, 35: 30.33e6, 180: 100.86e6}  # cap to kept pictures: RealSyn 15M, 30M and 100M
CONCENTRATIONS = (2, 10, 100)
SAMPLED, SEED = 100_000, 7
# Weight of the overall rate, in answers, when a cluster's own rate is estimated.
SHRINKAGE = 10.0
POLICIES = ("none", "overall", "cluster", "doubling")


@dataclass(frozen=True)
class World:
    """Simulated clusters.

    ``starts`` (clusters + 1) is the first picture of each; ``passed`` (pictures + 1) counts the passing pictures before
    it.
    """

    starts: np.ndarray
    passed: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """Number of pictures of each cluster."""
        return np.diff(self.starts)

    def known(self, asked: np.ndarray) -> np.ndarray:
        """Count the passing pictures among the first ``asked`` of each cluster."""
        return self.passed[self.starts[:-1] + asked] - self.passed[self.starts[:-1]]


@dataclass(frozen=True)
class Waves:
    """Number of texts ``asked`` for in each wave, and of passing pictures ``kept`` under the cap."""

    asked: tuple[int, ...]
    kept: int


def world(sizes: np.ndarray, concentration: float, rng: np.random.Generator) -> World:
    """Draw which pictures pass; each cluster has a rate of its own, Beta with mean 0.85."""
    mean = PASSING / PICTURES
    rates = rng.beta(mean * concentration, (1 - mean) * concentration, len(sizes))
    passes = rng.random(int(sizes.sum())) < np.repeat(rates, sizes)
    return World(np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([[0], np.cumsum(passes)]))


def waves(world: World, cap: int, policy: str) -> Waves:
    """Request texts wave by wave until every cluster has ``cap`` passing pictures or no unknown one.

    Hashes decide the order, so the requested pictures are always the beginning of a cluster, and one number a cluster
    is the whole state.
    """
    sizes, asked, each = world.sizes, np.zeros(len(world.sizes), np.int64), []
    while True:
        known = world.known(asked)
        lacking = np.where(asked < sizes, np.maximum(cap - known, 0), 0)
        if not lacking.any():
            return Waves(tuple(each), int(np.minimum(known, cap).sum()))
        more = np.minimum(np.ceil(lacking / rates(asked, known, policy, len(each))).astype(np.int64), sizes - asked)
        each.append(int(more.sum()))
        asked += more


def rates(asked: np.ndarray, known: np.ndarray, policy: str, before: int) -> np.ndarray:
    """Return the pass rate that a wave expects of each cluster; 1 in the first wave, which over-asks for none.

    'overall' is the rate of all answers. 'cluster' is the cluster's own rate, shrunk to the overall one. 'doubling' is
    that in the second wave, half of it in the third, a quarter in the fourth: the fewer pictures are left, the less it
    costs to ask for more of them.
    """
    if policy == "none" or not before:
        return np.ones(len(asked))
    overall = max(known.sum(), 1) / asked.sum()
    if policy == "overall":
        return np.full(len(asked), overall)
    own = (known + SHRINKAGE * overall) / (asked + SHRINKAGE)
    return own / 2 ** (before - 1) if policy == "doubling" else own


def kept(passing: np.ndarray, cap: int) -> float:
    """Return how many pictures a cap keeps, scaled to CLUSTERS; ``passing`` counts the passing ones by cluster."""
    return float(np.minimum(passing, cap).mean()) * CLUSTERS


def sizes(empty: float, sigma: float, n: int) -> np.ndarray:
    """Return ``n`` cluster sizes at even quantiles, with the mean PICTURES / CLUSTERS.

    A share ``empty`` of the sizes is 0; the others are lognormal.
    """
    filled = n - round(empty * n)
    normal = NormalDist()
    drawn = np.exp(sigma * np.array([normal.inv_cdf((at + 0.5) / filled) for at in range(filled)]))
    drawn *= PICTURES / CLUSTERS * n / drawn.sum()
    return np.concatenate([np.zeros(n - filled, np.int64), np.rint(drawn).astype(np.int64)])


def fitted(n: int = 2_000) -> tuple[float, float]:
    """Return (share of empty clusters, sigma) whose caps keep nearly KEPT, by least squares of logarithms."""

    def misfit(shape: tuple[float, float]) -> float:
        passing = sizes(*shape, n) * PASSING / PICTURES
        return sum(np.log(kept(passing, cap) / wanted) ** 2 for cap, wanted in KEPT.items())

    shapes = product(np.arange(0, 0.31, 0.02).round(2).tolist(), np.arange(0.2, 2.6, 0.05).round(2).tolist())
    return min(shapes, key=misfit)


def rows(n: int, seed: int, shape: tuple[float, float]) -> Iterator[dict[str, float | int | str]]:
    """Yield one row a cap, concentration and policy.

    ``share`` is of all pictures; ``beyond`` is relative to the least possible number of texts.
    """
    for concentration in CONCENTRATIONS:
        made = world(sizes(*shape, n), concentration, np.random.default_rng(seed))
        for cap in KEPT:
            least = sum(waves(made, cap, "none").asked)
            for policy in POLICIES:
                found = waves(made, cap, policy)
                total = sum(found.asked)
                late = np.cumsum(found.asked) < 0.999 * total
                yield {
                    "cap": cap,
                    "concentration": concentration,
                    "policy": policy,
                    "share": round(total / int(made.sizes.sum()), 4),
                    "beyond": round(total / least - 1, 4),
                    "waves": len(found.asked),
                    "waves_of_most": int(late.sum()) + 1,
                    "kept": round(found.kept / n * CLUSTERS),
                }


def main() -> None:
    """Fit the sizes, simulate all policies, and write the result."""
    shape = fitted()
    passing = sizes(*shape, SAMPLED) * PASSING / PICTURES
    made = {
        "name": "waves",
        "fit": {"empty": shape[0], "sigma": shape[1]} | {str(cap): round(kept(passing, cap)) for cap in KEPT},
        "rows": list(rows(SAMPLED, SEED, shape)),
        "settings": {"clusters": SAMPLED, "seed": SEED, "shrinkage": SHRINKAGE},
        "machine": measure.machine(), "versions": measure.versions(), "date": date.today().isoformat(),
        "commit": measure.commit(), "command": "python -m infra.waves",
    }  # fmt: skip
    (measure.RESULTS / "waves.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
