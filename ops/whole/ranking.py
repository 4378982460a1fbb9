"""Rank vectors by dot product, independently of rounding errors, and scale vectors to length 1."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

# The size in bytes of a matmul block's result, which sets the number of its rows.
BLOCK_BYTES = 64 << 20
# The last bits of a matmul depend on its shape; the difference is below ROUNDING for vectors of length 1. All
# candidates for the best are therefore recomputed row by row, which gives equal bits for equal vectors in any block,
# order or number of threads.
ROUNDING = 1e-5
# Half a step of bfloat16 at 1. If the CPU has bfloat16 products (4 times as fast as float32), they find the candidates,
# and their error is added to ROUNDING.
HALF_STEP = 2.0**-9
# Products of one block of queries: so many stay in the processor's cache during a scan.
SCANNED = 1 << 20
# Up to so many products numpy takes less time than the import of torch: 2 CPU s.
WITHOUT_TORCH = 1 << 24
GROUPS = 64  # groups of columns in a scan


def unit(vectors: np.ndarray) -> np.ndarray:
    """Return rows scaled to length 1: (n, d) of any float type to float32; a row of zeros stays zero."""
    rows = np.asarray(vectors, dtype=np.float32)
    lengths = np.sqrt((rows * rows).sum(axis=1, keepdims=True))
    return rows / np.where(lengths > 0, lengths, 1)


def blocks(n: int, columns: int, most: int = 2**31) -> Iterator[slice]:
    """Yield slices of ``range(n)`` so that a float32 product (rows, ``columns``) takes about BLOCK_BYTES.

    A slice has at most ``most`` rows and at least one.
    """
    step = min(most, max(1, BLOCK_BYTES // (4 * max(1, columns))))
    return (slice(start, min(n, start + step)) for start in range(0, n, step))


def products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the dot products along the last axis in float32; equal vectors give equal bits at any position."""
    return (left * right).sum(axis=-1, dtype=np.float32)


def nearest(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the ``min(k, len(vectors))`` rows of ``vectors`` with the largest dot product, for a block of queries.

    Returns (indices int64, products float32), best first, ties by the smaller index; both inputs are float32. The
    result is exact: rough products only select the candidates, within the bound of their error.
    """
    k = min(k, len(vectors))
    best = np.empty((len(queries), k), dtype=np.int64)
    exact = np.empty((len(queries), k), dtype=np.float32)
    if k == 0 or len(queries) == 0:
        return best, exact
    by_torch = uses_torch(len(queries) * len(vectors))
    known = _Rough.of(vectors, by_torch)
    step = max(1, SCANNED // len(vectors))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        rows, columns = _candidates(_Rough.of(queries[part], by_torch), known, k)
        best[part], exact[part] = _rank(queries[part], vectors, rows, columns, k)
    return best, exact


def uses_torch(n: int) -> bool:
    """Return whether torch computes ``n`` products: it is imported already, or they take longer than its import."""
    return "torch" in sys.modules or n > WITHOUT_TORCH


@cache
def multiplies_bfloat16() -> bool:
    """Return whether this CPU has instructions for bfloat16 products; without them they are slower than float32."""
    import torch

    found = getattr(torch.cpu, "get_capabilities", dict)()
    return bool(found.get("avx512_bf16") or found.get("amx_bf16"))


@dataclass(frozen=True)
class _Rough:
    """Rows as float32 or a bfloat16 tensor for the matmul, their exact lengths, and each row's rounding error."""

    values: Any
    lengths: np.ndarray
    errors: np.ndarray

    @staticmethod
    def of(rows: np.ndarray, by_torch: bool = True) -> "_Rough":
        """Convert rows (n, d) float32 to a tensor ``by_torch``, rounded to bfloat16 if the CPU multiplies it fast."""
        if not by_torch:
            return _Rough(rows, np.sqrt((rows * rows).sum(axis=1)), np.zeros(len(rows), np.float32))
        import torch

        exact = torch.from_numpy(np.require(rows, requirements=["C", "W"]))
        values = exact.bfloat16() if multiplies_bfloat16() else exact
        errors = torch.linalg.vector_norm(exact - values, dim=1) if values is not exact else torch.zeros(len(rows))
        return _Rough(values, torch.linalg.vector_norm(exact, dim=1).numpy(), errors.numpy())

    def off(self, other: "_Rough") -> np.ndarray:
        """Bound the error of each row's rough products with any row of ``other``: (n,)."""
        longest, furthest = other.lengths.max(), other.errors.max()
        stored = 0.0 if str(self.values.dtype).endswith("float32") else HALF_STEP  # the product is rounded too
        rounding = (ROUNDING + stored) * (self.lengths + self.errors) * (longest + furthest)
        return self.errors * longest + (self.lengths + self.errors) * furthest + rounding


def _candidates(queries: _Rough, vectors: _Rough, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find each (query, vector) pair that may be among the query's ``k`` best, sorted by query."""
    rough = queries.values @ vectors.values.T
    n, columns = rough.shape
    if isinstance(rough, np.ndarray):
        limit = np.partition(rough, columns - k, axis=1)[:, columns - k] - 2 * queries.off(vectors)
        return _filled(np.flatnonzero(rough >= limit[:, None]), n, columns, k)
    import torch

    if k <= GROUPS <= columns // 2:
        # At least k vectors reach the k-th best of the groups' maxima; the columns left over belong to no group.
        even = columns // GROUPS
        firm = rough[:, : even * GROUPS].view(n, even, GROUPS).amax(1).float()
    else:
        firm = rough.float()
    firm = firm.topk(k, dim=1).values[:, -1] if k > 1 else firm.amax(1)
    # Round down to the number format of the products, by one step more than needed.
    limit = firm - torch.from_numpy(2 * queries.off(vectors)).float()
    limit = limit - limit.abs() * 2 * HALF_STEP if rough.dtype != torch.float32 else limit
    return _filled(np.flatnonzero((rough >= limit.to(rough.dtype)[:, None]).numpy()), n, columns, k)


def _filled(found: np.ndarray, n: int, columns: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the (query, vector) pairs of flat positions ``found``; all of a query that has less than ``k``."""
    rows, places = np.divmod(found, columns)
    few = np.flatnonzero(np.bincount(rows, minlength=n) < k)  # only for vectors with NaN
    if len(few):
        others = ~np.isin(rows, few)
        rows = np.concatenate([rows[others], np.repeat(few, columns)])
        places = np.concatenate([places[others], np.tile(np.arange(columns), len(few))])
        order = np.argsort(rows, kind="stable")
        rows, places = rows[order], places[order]
    return rows, places


def _rank(
    queries: np.ndarray, vectors: np.ndarray, rows: np.ndarray, columns: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rank each query's candidates and return the best ``k``, by products that do not depend on the block."""
    exact = np.empty(len(rows), dtype=np.float32)
    step = max(1, SCANNED // (4 * queries.shape[1]))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        exact[part] = products(queries.take(rows[part], axis=0), vectors.take(columns[part], axis=0))
    order = np.lexsort((columns, -exact, rows))
    starts = np.searchsorted(rows, np.arange(len(queries)))
    chosen = order[starts[:, None] + np.arange(k)]
    return columns[chosen], exact[chosen]
