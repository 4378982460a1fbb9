"""Compare soft cap sampling with a cap of clusters, by `pairmill prove`'s trainings on eight planted worlds.

Run as ``python -m infra.bench.soft_cap [--pairs N] [--worlds W]``. Kinds have Zipf's sizes, 40 % of the texts are
another picture's, and a filter's score is 1 for right pairs and -1 for wrong ones, with noise of 1. All selections have
as many pairs, or draws. Intervals are over worlds.

- ``cap`` takes what scores above 0, at most so many a kind that 70 % are left: `balance.cap`.
- ``best`` takes the highest scores.
- ``soft T/P`` draws by the softmax of score / T, and each draw lowers the pair's logit by P: soft cap sampling (FLYT,
  arXiv 2503.08805); from all pairs, or from those that score above 0.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from infra.bench.measure import Row, finish, parser
from pairmill.ops.whole import cut_trials
from pairmill.ops.whole.cut_trials import UNSEEN, Pool, centred, difference, kinds_of, recalls

DIMENSIONS, KINDS, SEEDS, AT_ONCE = 16, 24, 4, 20
SETTINGS = ((1.0, 0.5), (1.0, 2.0), (0.5, 2.0), (0.5, 6.0), (2.0, 4.0))


def made(n: int, seed: int) -> tuple[Pool, np.ndarray]:
    """Return a pool of ``n`` pairs, and the filter's scores (n,)."""
    rng = np.random.default_rng(seed)
    sizes = 1 / np.arange(1, KINDS + 1)
    centres = 1.5 * rng.standard_normal((KINDS, DIMENSIONS))
    shown = centres[rng.choice(KINDS, size=n, p=sizes / sizes.sum())] + rng.standard_normal((n, DIMENSIONS))
    towers = [np.linalg.qr(rng.standard_normal((DIMENSIONS, DIMENSIONS)))[0] for _ in range(2)]
    said, wrong = np.arange(n), np.flatnonzero(rng.random(n) < 0.4)
    said[wrong] = rng.permutation(wrong)
    is_right = said == np.arange(n)
    scores = np.where(is_right, 1.0, -1.0) + rng.standard_normal(n)
    pictures = centred(shown @ towers[0])
    texts = centred(shown[said] @ towers[1] + rng.standard_normal((n, DIMENSIONS)))
    raw = np.stack([np.arange(n)] * 2, 1)
    return Pool((pictures, texts), kinds_of(pictures), raw, raw[is_right]), scores


def capped(kinds: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Return the places of ``allowed`` under the smallest cap of a kind that leaves 70 % of them."""
    order = np.random.default_rng(0).permutation(np.flatnonzero(allowed))
    ranks = np.array([(kinds[order[:n]] == kinds[at]).sum() for n, at in enumerate(order)])
    return order[ranks < next(cap for cap in range(1, len(order) + 1) if (ranks < cap).sum() >= 0.7 * len(order))]


def soft_cap(scores: np.ndarray, draws: int, temperature: float, penalty: float, seed: int) -> np.ndarray:
    """Draw places (draws,), AT_ONCE different ones a round: those of the largest logits with Gumbel noise."""
    rng, logits, drawn = np.random.default_rng(seed), scores / temperature, []
    while len(drawn) < draws:
        best = np.argsort(-(logits + rng.gumbel(size=len(logits))))[:AT_ONCE]
        logits[best] -= penalty
        drawn += best.tolist()
    return np.array(drawn[:draws])


def main() -> None:
    """Train on every selection of every world, print the differences to the cap, and write the result."""
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, default=1500)
    options.add_argument("--worlds", type=int, default=8)
    args = options.parse_args()
    cut_trials.SAMPLES = (0, 15_000, 15_000)
    found: dict[str, list[float]] = defaultdict(list)
    for world in range(args.worlds):
        pool, scores = made(args.pairs, 700 + world)
        above = np.flatnonzero(scores > 0)
        cap = capped(pool.kinds, scores > 0)
        fixed = {"raw": np.arange(args.pairs), "cap": cap, "best": np.argsort(-scores)[: len(cap)]}
        seen: dict[str, list[float]] = defaultdict(list)
        for seed in range(SEEDS):
            arms = dict(fixed)
            for setting in SETTINGS:
                name = "soft {:g}/{:g}".format(*setting)
                arms[name] = soft_cap(scores, len(cap), *setting, seed)
                arms[f"{name} above 0"] = above[soft_cap(scores[above], len(cap), *setting, seed)]
            rows = {name: pool.raw[places] for name, places in arms.items()}
            for name, values in recalls(pool, rows, {}, seed, min(map(len, rows.values()))).items():
                seen[name].append(values[UNSEEN])
        for name, values in seen.items():
            found[name].append(float(np.mean(values)))
    rows = []
    for name, values in found.items():
        gain = difference(np.subtract(values, found["cap"]).tolist())
        note = "" if name == "cap" else f"{gain.mean:+.3f} ± {gain.half:.3f} to cap"
        rows.append(Row(f"{name}, unseen kinds", "R@5", float(np.mean(values)), note=note))
    finish("soft_cap", rows, args)


if __name__ == "__main__":
    main()
