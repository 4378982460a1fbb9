"""Search a million vectors by codes of one bit per dimension, then rank the best candidates by their full vectors.

The codes are RaBitQ's (Gao and Long 2024, arXiv 2405.12497), by faiss: signs of the centred and rotated vector, and two
numbers that correct its products. At 1M vectors of 512 numbers a search reads 73 MB of codes instead of 1 GB.
"""

from typing import TYPE_CHECKING

import numpy as np

from pairmill.ops.whole.mapped import pick_rows

if TYPE_CHECKING:
    import faiss  # 0.3 CPU s, which the scan of a small lake saves

QUERY_BITS = 4  # of each number of a query; with 8 a search takes a tenth longer and finds the same
BY_CODE = 10_000  # rows that are ranked by their full vectors
SCANNED_AT_ONCE = 16_384  # rows converted to float32 at once: 32 MB of 512 numbers, which stays near the cache
EXACT_BELOW = 50_000  # vectors that are scanned in full, in 0.03 s


def empty_index(sample: np.ndarray) -> "faiss.Index":
    """Return an index without vectors, centred on the mean of ``sample`` (n, d); `add` takes float32 blocks.

    Its rotation, the same for each d, spreads the variance of a few large dimensions, as CLIP's, over all bits.
    """
    import faiss

    d = sample.shape[1]
    codes = faiss.IndexRaBitQ(d, faiss.METRIC_INNER_PRODUCT)
    codes.qb = QUERY_BITS
    index = faiss.IndexPreTransform(faiss.RandomRotationMatrix(d, d), codes)
    index.train(sample.astype(np.float32))
    return index


def nearest(index: "faiss.Index | None", query: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Search the ``k`` vectors nearest to ``query`` (d,) by dot product; return their rows (m,) int64, best first.

    ``index`` has the codes of ``vectors`` (n, d), None for a scan of all. The result is exact without an index, or for
    k > BY_CODE; of a million clustered vectors it holds over 0.95 of the true 50 nearest (`infra/bench/browse.py`).
    """
    if index is None or k > BY_CODE:
        return most_similar(query, vectors, k)
    rows = index.search(query[None].astype(np.float32), min(BY_CODE, len(vectors)))[1][0]
    rows = np.sort(rows[rows >= 0])  # reads the map forwards, and ties go to the smaller row
    return rows[most_similar(query, pick_rows(vectors, rows), k)]


def most_similar(query: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the row numbers (n,) int64 of the ``k`` most similar ``vectors``, best first; ties by the smaller row.

    ``query`` is (d,) float32, ``vectors`` (n, d) float16 or float32, maybe a memory map. There are fewer than ``k``
    results if there are fewer vectors.
    """
    products = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), SCANNED_AT_ONCE):
        block = np.asarray(vectors[start : start + SCANNED_AT_ONCE], np.float32)
        np.matmul(block, query, out=products[start : start + len(block)])
    k = min(k, len(products))
    if k == 0:
        return np.empty(0, np.int64)
    best = np.argpartition(-products, k - 1)[:k]
    return best[np.lexsort((best, -products[best]))].astype(np.int64)
