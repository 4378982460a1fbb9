"""Codes of one bit find nearly all of what a full scan finds, also where a few dimensions dwarf the others."""

from typing import Any

import numpy as np
import pytest

from infra.bench.topics import vectors
from pairmill.ops.whole import sign_codes
from pairmill.ops.whole.sign_codes import EXACT_BELOW, empty_index, most_similar, nearest

N, K = 60_000, 50


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    """Clustered unit vectors in a cone: two dimensions are larger than all others together, as CLIP's are."""
    made = vectors(N, dimension=256)
    made[:, 7] += 1.5
    made[:, 50] -= 1.0
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def index(stored: np.ndarray) -> Any:
    made = empty_index(stored[::10])
    for block in (stored[:999], stored[999:]):
        made.add(block.astype(np.float32))
    return made


@pytest.mark.slow
def test_at_least_95_of_100_true_neighbours_are_found(stored: np.ndarray, index: Any, monkeypatch: pytest.MonkeyPatch):
    assert N > EXACT_BELOW
    monkeypatch.setattr(sign_codes, "BY_CODE", 600)  # a share of these as small as the constant's of a million
    mean, random = stored.astype(np.float32).mean(0), np.random.default_rng(3)
    pictures = [stored[row].astype(np.float32) for row in random.integers(0, N, 10)]
    texts = [picture - mean + random.normal(size=256).astype(np.float32) * 0.04 for picture in pictures]
    shares = []
    for query in (*pictures, *texts):
        true, found = most_similar(query, stored, K), nearest(index, query, stored, K)
        assert found.shape == (K,) and len(set(found)) == K
        products = stored[found].astype(np.float32) @ query
        assert (np.diff(products) <= 0).all()
        shares.append(len(set(true) & set(found)) / K)
    assert np.mean(shares) >= 0.95 and min(shares) >= 0.8


def test_a_picture_is_its_own_first_neighbour(stored: np.ndarray, index: Any):
    for row in (0, 31_313, N - 1):
        found = nearest(index, stored[row].astype(np.float32), stored, K)
        assert row in found[:3].tolist()


def test_few_vectors_are_scanned_in_full(stored: np.ndarray):
    few = stored[:2_000]
    query = few[5].astype(np.float32)
    assert nearest(None, query, few, K).tolist() == most_similar(query, few, K).tolist()
