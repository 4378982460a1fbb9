"""Codes of one bit find nearly all of what a full scan finds, also where a few dimensions dwarf the others."""

import numpy as np
import pytest

from infra.bench.topics import vectors
from pairmill.ops.whole import sign_codes
from pairmill.ops.whole.sign_codes import EXACT_BELOW, SignCodes, encode, hamming, most_similar

N, K = 60_000, 50


@pytest.fixture(scope="module")
def stored() -> np.ndarray:
    """Clustered unit vectors in a cone: two dimensions are larger than all others together, as CLIP's are."""
    made = vectors(N, dimension=256)
    made[:, 7] += 1.5
    made[:, 50] -= 1.0
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float16)


@pytest.fixture(scope="module")
def codes(stored: np.ndarray) -> SignCodes:
    mean = stored[::10].astype(np.float32).mean(0)
    return SignCodes(mean, np.concatenate([encode(stored[:999], mean), encode(stored[999:], mean)], axis=1))


def test_at_least_95_of_100_true_neighbours_are_found(
    stored: np.ndarray, codes: SignCodes, monkeypatch: pytest.MonkeyPatch
):
    assert N > EXACT_BELOW
    monkeypatch.setattr(sign_codes, "BY_CODE", 4_000)  # as small a part of these as the constants are of a million
    monkeypatch.setattr(sign_codes, "BY_DOT", 500)
    mean, random = codes.mean, np.random.default_rng(3)
    pictures = [stored[row].astype(np.float32) for row in random.integers(0, N, 10)]
    texts = [picture - mean + random.normal(size=256).astype(np.float32) * 0.04 for picture in pictures]
    shares = []
    for query in (*pictures, *texts):
        true, found = most_similar(query, stored, K), codes.nearest(query, stored, K)
        assert found.shape == (K,) and len(set(found)) == K
        products = stored[found].astype(np.float32) @ query
        assert (np.diff(products) <= 0).all()
        shares.append(len(set(true) & set(found)) / K)
    assert np.mean(shares) >= 0.95 and min(shares) >= 0.8


def test_a_picture_is_its_own_first_neighbour(stored: np.ndarray, codes: SignCodes):
    for row in (0, 31_313, N - 1):
        found = codes.nearest(stored[row].astype(np.float32), stored, K)
        assert row in found[:3].tolist()


def test_few_vectors_are_scanned_in_full(stored: np.ndarray):
    few, none = stored[:2_000], SignCodes(np.zeros(100, np.float32), np.zeros((2, 0), np.uint64))
    query = few[5].astype(np.float32)
    assert none.nearest(query, few, K).tolist() == most_similar(query, few, K).tolist()


def test_the_distance_of_codes_is_the_number_of_differing_bits():
    codes = np.random.default_rng(1).integers(0, 2**63, (3, 500), dtype=np.uint64)
    bits = np.unpackbits(codes.T.copy().view(np.uint8), axis=1)
    assert hamming(codes, codes[:, 17]).tolist() == (bits != bits[17]).sum(1).tolist()
