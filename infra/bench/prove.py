"""Benchmark `pairmill prove` after features: CPU seconds and memory of its trainings, from 1,000 to a million pairs.

Run as ``python -m infra.bench.prove [--pairs N …] [--dimensions D] [--seeds S]``. Vectors are made: kinds with noise,
half of the texts another picture's. Each size runs in this process, the largest last, so peak memory is the largest's.
The trainings of ``--seeds`` are measured, and told as those of the eight seeds of a proof: the raw pool, the random
control and the version.
"""

from __future__ import annotations

import numpy as np

from infra.bench.measure import Row, finish, parser, peak_mb, timed
from pairmill.ops.whole.cut_trials import SEEDS, Pool, centred, difference, kinds_of, random_arm, recalls

KINDS = 200
LATENT = 24  # dimensions in which pictures of one kind differ


def made(n: int, dimensions: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return float16 vectors of pictures and of texts (n, d), and which texts are their picture's own."""
    rng = np.random.default_rng(5)
    centres, towers = rng.standard_normal((KINDS, LATENT)), rng.standard_normal((2, LATENT, dimensions))
    shown = (centres[rng.integers(KINDS, size=n)] + rng.standard_normal((n, LATENT))).astype(np.float32)
    said = np.arange(n)
    wrong = np.flatnonzero(rng.random(n) < 0.5)
    said[wrong] = rng.permutation(wrong)
    noise = rng.standard_normal((n, LATENT)).astype(np.float32)
    pictures = (shown @ towers[0].astype(np.float32)).astype(np.float16)
    return pictures, ((shown[said] + noise) @ towers[1].astype(np.float32)).astype(np.float16), said == np.arange(n)


def main() -> None:
    """Measure all sizes and write the result."""
    options = parser(__doc__)
    options.add_argument("--pairs", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    options.add_argument("--dimensions", type=int, default=512)
    options.add_argument("--seeds", type=int, default=1, help="seeds that are measured")
    args = options.parse_args()
    rows, peaks, gains = [], {}, {}
    for n in args.pairs:
        pictures, texts, is_right = made(n, args.dimensions)
        found, pools = [], []

        def prepare(pictures: np.ndarray = pictures, texts: np.ndarray = texts, pools: list = pools) -> None:
            vectors, raw = centred(pictures), np.stack([np.arange(len(pictures))] * 2, 1)
            pools.append(Pool((vectors, centred(texts)), kinds_of(vectors), raw, raw))

        before = timed(prepare)
        pool: Pool = pools[0]
        kept = np.random.default_rng(1).random(n) < np.where(is_right, 0.9, 0.1)
        cut = pool.raw[kept]

        def train(pool: Pool = pool, cut: np.ndarray = cut, found: list = found) -> None:
            for seed in range(args.seeds):
                arms = {"raw": pool.raw, "random": random_arm(pool.raw, len(cut), seed), "cut": cut}
                found.append(recalls(pool, arms, {"kept": pool.kept_kinds(cut)}, seed, len(cut)))

        spent = before.cpu + timed(train).cpu * SEEDS / args.seeds
        goal = {1_000: "≤ 60", 1_000_000: "≤ 3,600 (30 min of two cores)"}.get(n, "")
        rows.append(Row(f"a proof of {n:,} pairs", "CPU s", spent, target=goal))
        peaks[n], gains[n] = round(peak_mb()), [each["cut"]["unseen"] - each["raw"]["unseen"] for each in found]
        if len(gains[n]) > 1:
            gains[n] = str(difference(gains[n]))
    rows.append(Row(f"peak memory at {args.pairs[-1]:,} pairs", "MB", peaks[args.pairs[-1]], target="≤ 16,000"))
    finish("prove", rows, args, peak_mb=peaks, gains=gains)


if __name__ == "__main__":
    main()
