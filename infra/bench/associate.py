"""Benchmark the search for the nearest sentences of pictures inside the probed clusters, against exact faiss.

Run as ``python -m infra.bench.associate [--rows N] [--queries N] [--clusters K] [--memory N] [--vectors FOLDER]``.
Inputs are distinct sentences and pictures from the demo world's generator, embedded by its CLIP. A million sentences
take 20 CPU minutes; ``--vectors`` caches them. Centroids are trained before the measurement. The result is a curve of
recall at 3 and speed over the number of probes. The memory figure is the peak of the stage's own search over an index
on disk, with synthetic vectors.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from infra.bench import demo_vectors, topics, tree
from infra.bench.measure import Row, cpu, exponent, finish, interleaved, parser, peak_mb, ratio, timed
from pairmill.ops.whole import kmeans
from pairmill.ops.whole.search import recall_at_k, top_k
from pairmill.tasks.run.items.rows import to_blobs

TOP = 3
SHARD, DIMENSION, CLUSTERS, ROUTES = 40_000, 512, 2_048, 2
PROBES = (1, 2, 4, 8, 16)


class Index:
    """Search index: sentence vectors sorted by cluster, in float16 as the lake stores them."""

    def __init__(self, sentences: np.ndarray, centroids: np.ndarray) -> None:
        self.centroids = centroids
        cluster = kmeans.assign(sentences, centroids)[:, 0]
        self.vectors = sentences[np.argsort(cluster, kind="stable")].astype(np.float16)
        self.offsets = np.r_[0, np.cumsum(np.bincount(cluster, minlength=len(centroids)))]

    def search(self, queries: np.ndarray, probes: int) -> np.ndarray:
        """Return the similarities (n, TOP) of the nearest sentences. The time includes routing queries to clusters."""
        return top_k(queries, kmeans.assign(queries, self.centroids, probes), self.vectors, self.offsets, TOP)[1]


def exact(sentences: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Return the similarities (n, TOP) found by faiss's exact search over all sentences."""
    index = faiss.IndexFlatIP(sentences.shape[1])
    index.add(sentences)  # type: ignore[call-arg]
    return index.search(queries, TOP)[0]  # type: ignore[call-arg]


def stored(folder: Path, n: int, queries: np.ndarray, centroids: np.ndarray) -> None:
    """Write an index on disk, as the assignment stage does.

    Writes ``n`` synthetic sentences in shards of 40,000, and the queries with the clusters that they are routed to.
    """
    for start in range(0, n, SHARD):
        vectors = topics.vectors(SHARD, DIMENSION, first=start)
        write(folder / f"sentences-{start:08d}.parquet", vectors, kmeans.assign(vectors, centroids), start)
    write(folder / "routes.parquet", queries, kmeans.assign(queries, centroids, ROUTES), 0)


def write(path: Path, vectors: np.ndarray, nearest: np.ndarray, start: int) -> None:
    """Write one index file: rows sorted by cluster, in row groups of 10,000 as in a lake."""
    rows, probes = np.nonzero(nearest >= 0)
    clusters = nearest[rows, probes]
    order = np.argsort(clusters, kind="stable")
    rows = rows[order]
    table = pa.table(
        {
            "key": [f"{start + row:032x}" for row in rows.tolist()],
            "cluster": pa.array(clusters[order], pa.int32()),
            "index_vector": to_blobs(vectors[rows]),
            "commit": pa.array(np.zeros(len(rows), np.int64)),
        }
    )
    pq.write_table(table, path, row_group_size=10_000)


def kept(folder: Path | None, name: str, n: int, make: Callable[[int], np.ndarray]) -> np.ndarray:
    """Return the array ``make(n)``. With ``folder``, read it from there if an earlier call saved it, else save it."""
    if folder is None:
        return make(n)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-{n}.npy"
    if not path.exists():
        np.save(path, make(n))
    return np.load(path)


def memory(n: int, scratch: Path) -> tree.Used:
    """Measure a process that searches ``n`` sentences, one range of clusters at a time."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        sample = topics.vectors(40_000, DIMENSION)
        centroids = kmeans.train(sample, CLUSTERS, iterations=4)
        stored(scratch, n, sample[:20_000], centroids)
        command = [sys.executable, "-m", "infra.bench.peers.search_ranges", str(scratch), str(CLUSTERS), str(n)]
        return tree.run(command, scratch / "log", memory=True)
    finally:
        shutil.rmtree(scratch)


def growth(sentences: np.ndarray, centroids: np.ndarray, queries: np.ndarray, probes: int) -> dict:
    """Measure how the CPU seconds of a search grow with the number of sentences: a ninth, a third and all.

    The number of clusters grows in proportion and the number of queries is fixed. A search of a fixed number of
    clusters of a fixed size should grow by its routing alone.
    """
    sizes, seconds = [], []
    for part in (9, 3, 1):
        index = Index(sentences[: len(sentences) // part], centroids[: len(centroids) // part])
        sizes.append(len(sentences) // part)
        seconds.append(min(timed(lambda index=index: index.search(queries, probes)).cpu for _ in range(3)))
    return {"sizes": sizes, "cpu_seconds": seconds, "exponent": exponent(sizes, seconds)}


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="sentences")
    options.add_argument("--vectors", type=Path, help="folder where the sentences' and pictures' vectors are kept")
    options.add_argument("--queries", type=int, default=20_000, help="pictures")
    options.add_argument("--exact-queries", type=int, default=1_000, help="pictures that the exact search answers")
    options.add_argument("--clusters", type=int, default=1_000)
    options.add_argument(
        "--memory", type=int, default=1_000_000, help="sentences on disk of the search seen for memory"
    )
    options.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "pairmill-associate")
    options = options.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    sentences = kept(options.vectors, "sentences", options.rows, demo_vectors.sentence_vectors)
    queries = kept(options.vectors, "pictures", options.queries, demo_vectors.picture_vectors)
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
    few_mb, many_mb = (memory(n, options.scratch).peak_mb for n in (options.memory, 4 * options.memory))
    rows += [
        Row(f"memory of a search of {options.memory} sentences, a range at a time", "MB", few_mb, target="<= 2,000 MB",
            met=few_mb <= 2000, note=f"{DIMENSION} dimensions"),
        Row("the same, four times as many", "times", many_mb / few_mb, target="flat: <= 1.2",
            met=many_mb / few_mb <= 1.2, note=f"{many_mb:.0f} MB"),
    ]  # fmt: skip
    finish("associate", rows, options, curve=curve, growth=grown, peak_mb=round(peak_mb()))


if __name__ == "__main__":
    main()
