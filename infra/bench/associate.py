"""The nearest sentences of pictures, in the clusters that each picture probes, against exact search by faiss.

Run as ``python -m infra.bench.associate [--rows N] [--queries N] [--clusters K]``. Sentences and pictures are clustered
vectors of one maker; centroids are trained beforehand. A curve of recall at 3 against speed over the probes.
"""

from __future__ import annotations

import faiss
import numpy as np
import torch

from infra.bench import topics
from infra.bench.measure import Row, cpu, exponent, finish, interleaved, parser, peak_mb, ratio, timed
from ops.whole import kmeans
from ops.whole.search import recall_at_k, top_k
from ops.whole.vectors import unit

TOP = 3
PROBES = (1, 2, 4, 8, 16)


class Index:
    """Sentences sorted by cluster, half precision as stored."""

    def __init__(self, sentences: np.ndarray, centroids: np.ndarray) -> None:
        self.centroids = centroids
        cluster = kmeans.assign(sentences, centroids)[:, 0]
        self.vectors = sentences[np.argsort(cluster, kind="stable")].astype(np.float16)
        self.offsets = np.r_[0, np.cumsum(np.bincount(cluster, minlength=len(centroids)))]

    def search(self, queries: np.ndarray, probes: int) -> np.ndarray:
        """(n, TOP) similarities; routing is part of the work."""
        return top_k(queries, kmeans.assign(queries, self.centroids, probes), self.vectors, self.offsets, TOP)[1]


def exact(sentences: np.ndarray, queries: np.ndarray) -> np.ndarray:
    index = faiss.IndexFlatIP(sentences.shape[1])
    index.add(sentences)  # type: ignore[call-arg]
    return index.search(queries, TOP)[0]  # type: ignore[call-arg]


def far(vectors: np.ndarray) -> np.ndarray:
    """Pictures stand further from sentences than sentences from each other, which makes their nearest hard to route
    to: a cosine of some 0.5 to those of their own concept."""
    noise = np.random.default_rng(1).standard_normal(vectors.shape, np.float32)
    return unit(vectors + 1.3 * unit(noise))


def growth(sentences: np.ndarray, centroids: np.ndarray, queries: np.ndarray, probes: int) -> dict:
    """CPU seconds of a search among a ninth, a third and all sentences, clusters in proportion: queries stay as many,
    so a search of a fixed number of clusters of a fixed size should not grow at all but by its routing."""
    sizes, seconds = [], []
    for part in (9, 3, 1):
        index = Index(sentences[: len(sentences) // part], centroids[: len(centroids) // part])
        sizes.append(len(sentences) // part)
        seconds.append(min(timed(lambda index=index: index.search(queries, probes)).cpu for _ in range(3)))
    return {"sizes": sizes, "cpu_seconds": seconds, "exponent": exponent(sizes, seconds)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=200_000, help="sentences")
    options.add_argument("--queries", type=int, default=20_000, help="pictures")
    options.add_argument("--exact-queries", type=int, default=1_000, help="pictures that the exact search answers")
    options.add_argument("--clusters", type=int, default=1_000)
    options = options.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    both = topics.vectors(options.rows + options.queries)
    sentences, queries = both[: options.rows], far(both[options.rows :])
    few = queries[: options.exact_queries]
    centroids = kmeans.train(sentences[: 64 * options.clusters], options.clusters, iterations=8)
    index = Index(sentences, centroids)
    truth = exact(sentences, few)
    contenders = {f"probes {p}": lambda p=p: index.search(queries, p) for p in PROBES}
    rounds = interleaved({"exact": lambda: exact(sentences, few)} | contenders, options.rounds)
    scale = len(queries) / len(few)
    curve = []
    for probes in PROBES:
        times = rounds[f"probes {probes}"]
        recall = recall_at_k(index.search(few, probes), truth, TOP)
        curve.append({"probes": probes, "recall": recall, "queries": len(queries) / cpu(times),
                      "ratio": ratio(rounds["exact"], times) * scale})  # fmt: skip
    best = next((point for point in curve if point["recall"] >= 0.95), curve[-1])
    grown = growth(sentences, centroids, queries, best["probes"])
    peer = len(few) / cpu(rounds["exact"])
    met = best["recall"] >= 0.95 and best["ratio"] >= 10
    rows = [
        Row(
            f"search by {best['probes']} probes", "queries/CPU s", best["queries"], peer, "exact faiss", best["ratio"],
            best["recall"], ">= 10 x at recall@3 >= 0.95", met, f"{options.rows} sentences",
        )
    ]  # fmt: skip
    rows += [
        Row(f"{p['probes']} probes", "queries/CPU s", p["queries"], peer, "exact faiss", p["ratio"], p["recall"])
        for p in curve
    ]
    rows.append(
        Row("growth of the search", "exponent", grown["exponent"], target="<= 1.1", met=grown["exponent"] <= 1.1)
    )
    finish("associate", rows, options, curve=curve, growth=grown, peak_mb=round(peak_mb()))


if __name__ == "__main__":
    main()
