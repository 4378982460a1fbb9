"""Near-equal hashes and near-equal vectors, against brute force on a sample; groups by union-find; growth.

Run as ``python -m infra.bench.duplicates [--rows N] [--vectors N] [--edges N]``.
"""

from __future__ import annotations

from collections.abc import Callable

import faiss
import numpy as np
import torch

from infra.bench import topics
from infra.bench.measure import Row, cpu, exponent, finish, interleaved, parser, peak_mb, timed
from pairmill.ops.whole import kmeans
from pairmill.ops.whole.components import components
from pairmill.ops.whole.hamming import hamming_edges
from pairmill.ops.whole.ranking import unit
from pairmill.ops.whole.semantic import edges_within

RADIUS, THRESHOLD, PROBES, SAMPLE = 4, 0.96, 2, 20_000
# What the methods' own theory says of their growth. The 64 bits are cut into radius + a bands; a pair within the radius
# agrees in a of them, so for every choice of a bands all are sorted, and compared where they agree: C(radius + a, a) x
# (N log N + N^2 / 2^(64 a / (radius + a))). a grows with log N, so that the second part stays the smaller one: an
# exponent of 1.10 on paper over 1M to 9M (a = 2 for all three), and more where sorting leaves the cache. Union-find
# looks both ends of each edge up in an array of 8 N bytes: linear, but for cache misses.
# The clusters of vectors hold 200 at any N, so pairs are looked for in N x 200 products. To put every vector into its
# clusters is a step of its own (see cluster.py), N x K products with K = N / 200: N^2 up to 65,536 centroids (13M
# vectors, some 2 core hours), where the pipeline's router makes it N x 17 sqrt(K), N^1.5.
THEORY = {
    "hamming": "N log N x C(radius + a, a), a grows with log N",
    "union": "N x the cost of a cache miss",
    "assignment": "N x K, K = N / 200",
}


def hashes(n: int, seed: int = 0) -> np.ndarray:
    """(n,) uint64: one in five a copy of another with 0 to 6 bits turned, one in a hundred flat (all alike)."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, 2**64, n, dtype=np.uint64)
    copies = rng.choice(n, n // 5, replace=False)
    bits = np.array(
        [
            np.bitwise_or.reduce(np.uint64(1) << rng.integers(0, 64, 6, np.uint64)[:m]) if m else 0
            for m in rng.integers(0, 7, 1000)
        ],
        dtype=np.uint64,
    )
    found[copies] = found[rng.integers(0, n, len(copies))] ^ bits[rng.integers(0, 1000, len(copies))]
    found[rng.choice(n, n // 100, replace=False)] = np.uint64(1 << 63)
    return found


def copies(n: int) -> np.ndarray:
    """Clustered vectors, one in ten a near copy (cosine about 0.97) of another; a topic has 2,000 of them at any n.

    With 500 topics at any n the clusters of 200 vectors get less even as n grows (their squares summed went from 831
    to 1,112 a vector between 37,000 and 333,000), which would show as growth of the search.
    """
    found = topics.vectors(n, topics=max(1, n // 2_000))
    rng = np.random.default_rng(1)
    chosen = rng.choice(n, n // 10, replace=False)
    noise = unit(rng.standard_normal((len(chosen), found.shape[1]), np.float32))
    found[chosen] = unit(found[rng.integers(0, n, len(chosen))] + 0.25 * noise)
    return found


def brute_hamming(values: np.ndarray) -> set[tuple[int, int]]:
    """All pairs of distinct values within the radius, a row at a time."""
    found = set()
    for i, value in enumerate(values):
        near = np.flatnonzero(np.bitwise_count(values[i + 1 :] ^ value) <= RADIUS) + i + 1
        found |= {(i, int(j)) for j in near}
    return found


def hamming_recall(values: np.ndarray) -> float:
    values = np.unique(values[:SAMPLE])
    i, j, _ = hamming_edges(values, np.ones(len(values), bool), RADIUS)
    truth = brute_hamming(values)
    return len(truth & set(zip(i.tolist(), j.tolist(), strict=True))) / max(1, len(truth))


def semantic_recall(vectors: np.ndarray, edges: tuple) -> float:
    """Of pairs within the first rows at the threshold, how many a search of all rows found."""
    few = vectors[:SAMPLE]
    truth = set()
    for start in range(0, len(few), 1000):
        i, j = np.nonzero(few[start : start + 1000] @ few.T >= THRESHOLD)
        truth |= {(a, b) for a, b in zip((i + start).tolist(), j.tolist(), strict=True) if a < b}
    return len(truth & set(zip(edges[0].tolist(), edges[1].tolist(), strict=True))) / max(1, len(truth))


def random_edges(n: int) -> tuple[np.ndarray, np.ndarray]:
    """``n`` edges over as many nodes, most between neighbours, as groups of copies are."""
    rng = np.random.default_rng(2)
    left = rng.integers(0, n, n)
    return left, np.minimum(n - 1, left + rng.integers(0, 40, n))


def grown(sizes: list[int], seconds: list[float]) -> dict:
    return {"sizes": sizes, "cpu_seconds": seconds, "exponent": exponent(sizes, seconds)}


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="hashes")
    options.add_argument("--vectors", type=int, default=1_000_000)
    options.add_argument("--edges", type=int, default=10_000_000)
    options = options.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    # Large ones: what fits the cache would flatter the small end and steepen the fit.
    sizes = [options.rows, 3 * options.rows, 9 * options.rows]
    hamming, sorting = hamming_growth(sizes, options.rounds)
    union, looking = union_growth([options.edges, 3 * options.edges, 9 * options.edges], options.rounds)
    assigned, semantic, edges = semantic_growth([options.vectors // 9, options.vectors // 3, options.vectors])
    found, similar = hamming_recall(hashes(options.rows)), semantic_recall(*edges)
    union_seconds = union["cpu_seconds"][0]
    rows = [
        Row(
            f"edges of {options.rows} hashes, radius {RADIUS}",
            "hashes/CPU s",
            options.rows / hamming["cpu_seconds"][0],
            recall=found,
            target="recall 1.0, exponent <= 1.1",
            met=found == 1 and hamming["exponent"] <= 1.1,
            note=f"exponent {hamming['exponent']:.2f}, of bare sorting {sorting['exponent']:.2f}; "
            f"theory: {THEORY['hamming']}",
        ),
        Row(
            f"edges of {options.vectors} vectors, cosine {THRESHOLD}",
            "vectors/CPU s",
            options.vectors / semantic["cpu_seconds"][-1],
            recall=similar,
            target="recall >= 0.95, exponent <= 1.1",
            met=similar >= 0.95 and semantic["exponent"] <= 1.1,
            note=f"exponent {semantic['exponent']:.2f}, the clusters given",
        ),
        Row(
            f"the 2 nearest of {options.vectors // 200} clusters",
            "vectors/CPU s",
            options.vectors / assigned["cpu_seconds"][-1],
            note=f"exponent {assigned['exponent']:.2f}; theory: {THEORY['assignment']}",
        ),
        Row(
            f"union-find over {options.edges} edges",
            "CPU s",
            union_seconds,
            target="<= 30 s, exponent <= 1.1",
            met=union_seconds <= 30 and union["exponent"] <= 1.1,
            note=f"exponent {union['exponent']:.2f}, of a bare look at all ends {looking['exponent']:.2f}; "
            f"theory: {THEORY['union']}",
        ),
    ]
    finish(
        "duplicates",
        rows,
        options,
        growth={
            "hamming": hamming,
            "bare sorting": sorting,
            "assigned": assigned,
            "semantic": semantic,
            "union": union,
            "bare look": looking,
        },
        peak_mb=round(peak_mb()),
    )


def hamming_growth(sizes: list[int], rounds: int) -> tuple[dict, dict]:
    """A collection of its own for each size: of a sample of copies few pairs would be left. Beside it the bare sorting
    of as many hashes and their rows, which is what the method does most."""
    known = {n: hashes(n) for n in sizes}
    return (
        over(sizes, lambda n: hamming_edges(known[n], np.ones(n, bool), RADIUS), rounds),
        over(sizes, lambda n: known[n][np.argsort(known[n])], rounds),
    )


def union_growth(sizes: list[int], rounds: int) -> tuple[dict, dict]:
    """Beside it one bare look at both ends of every edge, in an array of a number a node."""
    graphs = {n: random_edges(n) for n in sizes}
    nodes = {n: np.arange(n) for n in sizes}
    return (
        over(sizes, lambda n: components(n, graphs[n]), rounds),
        over(sizes, lambda n: [nodes[n][ends] for ends in graphs[n]], rounds),
    )


def over(sizes: list[int], work: Callable[[int], object], rounds: int) -> dict:
    found = interleaved({str(n): lambda n=n: work(n) for n in sizes}, rounds)
    return grown(sizes, [cpu(each) for each in found.values()])


def semantic_growth(sizes: list[int]) -> tuple[dict, dict, tuple]:
    """Clusters of 200 vectors at any size, as a recipe sets them; centroids are trained beforehand."""
    seconds: dict[str, list[float]] = {"assigned": [], "edges": []}
    vectors, near, edges = np.empty(0), np.empty(0), ()
    for size in sizes:
        vectors = copies(size)
        centroids = kmeans.train(vectors[: 40 * size // 200], size // 200, iterations=6)
        rows, new = np.repeat(np.arange(size), PROBES), np.ones(size, bool)

        def assign(vectors: np.ndarray = vectors, centroids: np.ndarray = centroids) -> None:
            nonlocal near
            near = kmeans.assign(vectors, centroids, PROBES)

        def search(vectors: np.ndarray = vectors, rows: np.ndarray = rows, new: np.ndarray = new) -> None:
            nonlocal edges
            edges = edges_within(vectors, new, rows, near.ravel(), THRESHOLD)

        seconds["assigned"].append(min(timed(assign).cpu for _ in range(2)))
        seconds["edges"].append(min(timed(search).cpu for _ in range(2)))
    return grown(sizes, seconds["assigned"]), grown(sizes, seconds["edges"]), (vectors, edges)


if __name__ == "__main__":
    main()
