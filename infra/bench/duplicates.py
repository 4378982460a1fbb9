"""Benchmark the search for near-equal hashes and vectors against brute force on a sample, and union-find.

The bench also fits the growth of each. Run as
``python -m infra.bench.duplicates [--rows N] [--vectors N] [--edges N]``.
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
# Theoretical growth of each method.
# Hashes: the 64 bits are cut into radius + a bands. A pair within the radius agrees in at least a bands, so for every
# choice of a bands all hashes are sorted, and compared where these bands agree. Cost: C(radius + a, a) x
# (N log N + N^2 / 2^(64 a / (radius + a))). a grows with log N, so that the second term stays the smaller one. The
# exponent over 1M to 9M is 1.10 in theory (a = 2 for all three), and larger where sorting exceeds the CPU cache.
# Union-find: both ends of each edge are looked up in an array of 8 N bytes. Linear, but for cache misses.
# Vectors: clusters hold 200 at any N, so the search for pairs takes N x 200 products.
# Assignment, a step of its own (cluster.py), takes N x K products with K = N / 200: N^2 up to 65,536 centroids (13M
# vectors, some 2 core hours). Beyond that the pipeline's router makes it N x 17 sqrt(K), N^1.5.
THEORY = {
    "hamming": "N log N x C(radius + a, a), a grows with log N",
    "union": "N x the cost of a cache miss",
    "assignment": "N x K, K = N / 200",
}


def hashes(n: int, seed: int = 0) -> np.ndarray:
    """Make (n,) uint64 hashes: one in five a copy of another with 0 to 6 bits flipped, one in 100 flat (all alike)."""
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
    """Make clustered vectors, one in ten a near copy (cosine about 0.97) of another; a topic has 2,000 at any n.

    With 500 topics at any n, clusters of 200 vectors become less even as n grows: their summed squares went from 831 to
    1,112 a vector between 37,000 and 333,000. That would show as growth of the search.
    """
    found = topics.vectors(n, topics=max(1, n // 2_000))
    rng = np.random.default_rng(1)
    chosen = rng.choice(n, n // 10, replace=False)
    noise = unit(rng.standard_normal((len(chosen), found.shape[1]), np.float32))
    found[chosen] = unit(found[rng.integers(0, n, len(chosen))] + 0.25 * noise)
    return found


def brute_hamming(values: np.ndarray) -> set[tuple[int, int]]:
    """Find all pairs of distinct values within the radius by comparing all, one row at a time."""
    found = set()
    for i, value in enumerate(values):
        near = np.flatnonzero(np.bitwise_count(values[i + 1 :] ^ value) <= RADIUS) + i + 1
        found |= {(i, int(j)) for j in near}
    return found


def hamming_recall(values: np.ndarray) -> float:
    """Return the recall of the pairs found among the first hashes, against brute force."""
    values = np.unique(values[:SAMPLE])
    i, j, _ = hamming_edges(values, np.ones(len(values), bool), RADIUS)
    truth = brute_hamming(values)
    return len(truth & set(zip(i.tolist(), j.tolist(), strict=True))) / max(1, len(truth))


def semantic_recall(vectors: np.ndarray, edges: tuple) -> float:
    """Return the recall of ``edges`` for pairs at the threshold among the first vectors."""
    few = vectors[:SAMPLE]
    truth = set()
    for start in range(0, len(few), 1000):
        i, j = np.nonzero(few[start : start + 1000] @ few.T >= THRESHOLD)
        truth |= {(a, b) for a, b in zip((i + start).tolist(), j.tolist(), strict=True) if a < b}
    return len(truth & set(zip(edges[0].tolist(), edges[1].tolist(), strict=True))) / max(1, len(truth))


def random_edges(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Make ``n`` edges over ``n`` nodes, most between neighbours, as in groups of copies."""
    rng = np.random.default_rng(2)
    left = rng.integers(0, n, n)
    return left, np.minimum(n - 1, left + rng.integers(0, 40, n))


def grown(sizes: list[int], seconds: list[float]) -> dict:
    """Return sizes, CPU seconds and the fitted exponent."""
    return {"sizes": sizes, "cpu_seconds": seconds, "exponent": exponent(sizes, seconds)}


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="hashes")
    options.add_argument("--vectors", type=int, default=1_000_000)
    options.add_argument("--edges", type=int, default=10_000_000)
    options = options.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    # Large sizes: one that fits the CPU cache would be too fast, and steepen the fit.
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
    """Measure the growth of the hash search, and of bare sorting of as many hashes and their rows.

    Sorting is most of the method's work. Each size has a collection of its own: a sample would lose most copies.
    """
    known = {n: hashes(n) for n in sizes}
    return (
        over(sizes, lambda n: hamming_edges(known[n], np.ones(n, bool), RADIUS), rounds),
        over(sizes, lambda n: known[n][np.argsort(known[n])], rounds),
    )


def union_growth(sizes: list[int], rounds: int) -> tuple[dict, dict]:
    """Measure the growth of union-find, and of one bare lookup of both ends of every edge.

    The lookup is in an array of one number a node.
    """
    graphs = {n: random_edges(n) for n in sizes}
    nodes = {n: np.arange(n) for n in sizes}
    return (
        over(sizes, lambda n: components(n, graphs[n]), rounds),
        over(sizes, lambda n: [nodes[n][ends] for ends in graphs[n]], rounds),
    )


def over(sizes: list[int], work: Callable[[int], object], rounds: int) -> dict:
    """Measure the CPU seconds of ``work`` at each size, in interleaved rounds."""
    found = interleaved({str(n): lambda n=n: work(n) for n in sizes}, rounds)
    return grown(sizes, [cpu(each) for each in found.values()])


def semantic_growth(sizes: list[int]) -> tuple[dict, dict, tuple]:
    """Measure the growth of assignment and of the vector search; clusters hold 200 vectors at any size, as in a recipe.

    Centroids are trained before the measurement.

    Returns:
        Growth of assignment, growth of the search, and (vectors, edges) of the largest size.
    """
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
