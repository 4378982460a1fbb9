"""Benchmark k-means and assignment of clustered vectors, against faiss, and their growth over N/9, N/3 and N rows.

Run as ``python -m infra.bench.cluster [--rows N] [--clusters K] [--probes P]``.
"""

from __future__ import annotations

import faiss
import numpy as np
import torch

from infra.bench import topics
from infra.bench.measure import Row, cpu, exponent, finish, interleaved, parser, peak_mb, ratio, timed
from pairmill.ops.whole import kmeans


def by_faiss(vectors: np.ndarray, centroids: np.ndarray, probes: int) -> np.ndarray:
    """Return the ``probes`` nearest centroids of each vector, by faiss's exact inner-product index."""
    index = faiss.IndexFlatIP(centroids.shape[1])
    index.add(centroids)  # type: ignore[call-arg]
    return index.search(vectors, probes)[1]  # type: ignore[call-arg]


def growth(vectors: np.ndarray, centroids: np.ndarray) -> tuple[list[int], list[float]]:
    """Measure the CPU seconds of assigning a ninth, a third and all of the rows to the same centroids."""
    sizes = [len(vectors) // 9, len(vectors) // 3, len(vectors)]
    return sizes, [timed(lambda n=n: kmeans.assign(vectors[:n], centroids)).cpu for n in sizes]


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--clusters", type=int, default=2048)
    options.add_argument("--probes", type=int, default=8)
    options = options.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    vectors = topics.vectors(options.rows)
    centroids = np.empty(0)

    def train() -> None:
        nonlocal centroids
        centroids = kmeans.train(vectors[: 64 * options.clusters], options.clusters, iterations=8)

    trained = timed(train)
    some = vectors[: max(1000, options.rows // 4)]
    results: dict[str, np.ndarray] = {}
    contenders = {
        "ours": lambda: results.update(ours=kmeans.assign(vectors, centroids)),
        "faiss": lambda: results.update(faiss=by_faiss(vectors, centroids, 1)),
        "ours probes": lambda: results.update(probes=kmeans.assign(some, centroids, options.probes)),
        "faiss probes": lambda: by_faiss(some, centroids, options.probes),
    }
    rounds = interleaved(contenders, options.rounds)
    same = float((results["ours"][:, 0] == results["faiss"][:, 0]).mean())
    gain, gain_probes = ratio(rounds["faiss"], rounds["ours"]), ratio(rounds["faiss probes"], rounds["ours probes"])
    sizes, seconds = growth(vectors, centroids)
    power = exponent(sizes, seconds)
    unit = "vectors/CPU s"
    rows = [
        Row(
            f"assign to {options.clusters}",
            unit,
            len(vectors) / cpu(rounds["ours"]),
            len(vectors) / cpu(rounds["faiss"]),
            "faiss",
            gain,
            same,
            ">= 1.5 x at >= 99.9 % equal",
            gain >= 1.5 and same >= 0.999,
            "recall is equal centroids",
        ),
        Row(
            f"the nearest {options.probes}",
            unit,
            len(some) / cpu(rounds["ours probes"]),
            len(some) / cpu(rounds["faiss probes"]),
            "faiss",
            gain_probes,
        ),
        Row("growth of assignment", "exponent", power, target="<= 1.1", met=power <= 1.1),
        Row("training, 64 vectors a centroid, 8 steps", "CPU s", trained.cpu),
    ]
    finish(
        "cluster",
        rows,
        options,
        growth={"sizes": sizes, "cpu_seconds": seconds, "exponent": power},
        peak_mb=round(peak_mb()),
    )


if __name__ == "__main__":
    main()
