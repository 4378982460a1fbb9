"""Search a million vectors by codes of one bit per dimension, then rank the best candidates by their full vectors.

A code is the signs of the centred and rotated vector (as in RaBitQ, Gao and Long 2024). Search has three steps, each of
which passes fewer rows on: Hamming distance to the query's code, dot product of the codes with the query in four bits,
dot product of the full vectors. At 1M vectors of 512 numbers the first reads 64 MB instead of 1 GB.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

from pairmill.ops.whole.mapped import pick_rows

WORD = 64  # bits
AT_ONCE = 32_768  # codes compared at once, so that a step's arrays stay in the cache
QUERY_BITS = 4
BY_CODE, BY_DOT = 40_000, 5_000  # rows that the first two steps pass on
SCANNED_AT_ONCE = 16_384  # rows converted to float32 at once: 32 MB of 512 numbers, which stays near the cache
EXACT_BELOW = 50_000  # vectors that are scanned in full, in 0.03 s


@dataclass(frozen=True)
class SignCodes:
    """Sign codes (words, n) uint64 of n vectors, possibly memory-mapped, and the mean (d,) subtracted before coding."""

    mean: np.ndarray
    codes: np.ndarray

    def nearest(self, query: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
        """Return the rows (m,) int64 of the ``k`` vectors with the largest dot product with ``query`` (d,), best first.

        ``vectors`` (n, d) are those of the codes. The result is exact for fewer than EXACT_BELOW vectors; of a million
        clustered ones it holds over 0.95 of the true 50 nearest (`infra/bench/browse.py`).
        """
        n = len(vectors)
        if n < EXACT_BELOW or k > BY_DOT:
            return most_similar(query, vectors, k)
        turned = query.astype(np.float32) @ rotation(len(query))
        rows = _smallest(hamming(self.codes, _pack(turned[None] > 0)[0]), BY_CODE)
        rows = rows[_smallest(-_products(self.codes[:, rows], turned), BY_DOT)]
        rows.sort()  # reads the map forwards, and ties go to the smaller row
        return rows[most_similar(query, pick_rows(vectors, rows), k)]


def words(dimension: int) -> int:
    """Return the number of 64-bit words of a sign code of ``dimension`` bits."""
    return -(-dimension // WORD)


def encode(vectors: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Return the sign codes (words, n) uint64 of ``vectors`` (n, d) minus ``mean`` (d,)."""
    return _pack((vectors.astype(np.float32) - mean) @ rotation(len(mean)) > 0).T


@cache
def rotation(dimension: int) -> np.ndarray:
    """Return the random rotation (d, d) float32 that spreads the variance of a few large dimensions over all bits."""
    normal = np.random.default_rng(dimension).standard_normal((dimension, dimension))
    return np.linalg.qr(normal)[0].astype(np.float32)


def hamming(codes: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return the number of bits (n,) uint16 in which each of ``codes`` (words, n) differs from ``code`` (words,)."""
    found = np.zeros(codes.shape[1], np.uint16)
    for start in range(0, len(found), AT_ONCE):
        block = found[start : start + AT_ONCE]
        for row, word in zip(codes[:, start : start + AT_ONCE], code, strict=True):
            block += np.bitwise_count(row ^ word)
    return found


def _products(codes: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """Return the dot products (n,) of the codes' signs with the rotated query (d,), up to a constant.

    The query is rounded to QUERY_BITS bits, so that each bit plane is one AND and one count.
    """
    low, high = float(turned.min()), float(turned.max())
    step = (high - low) / (2**QUERY_BITS - 1) or 1.0
    levels = np.rint((turned - low) / step).astype(np.uint8)
    found = np.zeros(codes.shape[1], np.float32)
    for bit in range(QUERY_BITS):
        plane = _pack((levels[None] >> bit) & 1 > 0)[0]
        found += (step * 2**bit) * np.bitwise_count(codes & plane[:, None]).sum(0, dtype=np.uint16)
    return found + low * np.bitwise_count(codes).sum(0, dtype=np.uint16)


def _pack(bits: np.ndarray) -> np.ndarray:
    """Pack booleans (n, d) into (n, words) uint64; missing bits of the last word are 0."""
    padded = np.zeros((len(bits), words(bits.shape[1]) * WORD), bool)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1).view(np.uint64)


def _smallest(values: np.ndarray, k: int) -> np.ndarray:
    """Return the places of the ``k`` smallest values, in no order."""
    return np.argpartition(values, k - 1)[:k] if k < len(values) else np.arange(len(values))


def most_similar(query: np.ndarray, vectors: np.ndarray, k: int) -> np.ndarray:
    """Return the row numbers (n,) int64 of the ``k`` most similar ``vectors``, best first; ties by the smaller row.

    Args:
        query: (d,) float32.
        vectors: (n, d) float16 or float32, maybe a memory map.
        k: Number of results; fewer if there are fewer vectors.
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
