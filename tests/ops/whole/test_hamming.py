import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole import hamming
from pairmill.ops.whole.components import components
from pairmill.ops.whole.hamming import coloured_edges, hamming_edges
from tests.examples import examples
from tests.reference.hamming import all_pairs

HASHES = st.integers(0, 2**64 - 1)
FEW_BITS = st.lists(st.integers(0, 63), max_size=6).map(lambda bits: sum(1 << bit for bit in set(bits)))


@st.composite
def families(draw: st.DrawFn) -> list[int]:
    """Hashes of which many are a few bits from another, and some equal."""
    heads = draw(st.lists(HASHES, min_size=1, max_size=6))
    members = draw(st.lists(st.tuples(st.sampled_from(heads), FEW_BITS), max_size=40))
    return draw(st.permutations(heads + [head ^ flip for head, flip in members]))


def edges_of(hashes: list[int], is_new: list[bool] | None = None, radius: int = 4) -> dict[tuple[int, int], int]:
    new = np.ones(len(hashes), bool) if is_new is None else np.array(is_new, dtype=bool)
    i, j, distance = hamming_edges(np.array(hashes, dtype=np.uint64), new, radius)
    assert (i < j).all() and len(set(zip(i.tolist(), j.tolist(), strict=True))) == len(i)
    assert sorted(zip(i.tolist(), j.tolist(), strict=True)) == list(zip(i.tolist(), j.tolist(), strict=True))
    return dict(zip(zip(i.tolist(), j.tolist(), strict=True), distance.tolist(), strict=True))


def labels_of(n: int, pairs) -> list[int]:
    ends = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
    return components(n, (ends[0], ends[1])).tolist()


@given(families().map(lambda hashes: list(dict.fromkeys(hashes))), st.integers(0, 8))
@examples(200)
def test_distinct_hashes_get_exactly_the_edges_of_all_pairs(hashes: list[int], radius: int):
    assert edges_of(hashes, radius=radius) == all_pairs(hashes, radius)


@given(families(), st.integers(0, 6))
@examples(200)
def test_with_equal_hashes_the_components_are_those_of_all_pairs(hashes: list[int], radius: int):
    found, expected = edges_of(hashes, radius=radius), all_pairs(hashes, radius)
    assert found.items() <= expected.items()
    assert labels_of(len(hashes), found) == labels_of(len(hashes), expected)


@given(families(), st.data())
@examples(200)
def test_old_then_new_connects_what_all_at_once_connects(hashes: list[int], data: st.DataObject):
    is_new = data.draw(st.lists(st.booleans(), min_size=len(hashes), max_size=len(hashes)))
    old = [row for row, new in enumerate(is_new) if not new]
    before = {(old[i], old[j]) for i, j in edges_of([hashes[row] for row in old])}
    later = edges_of(hashes, is_new)
    assert all(is_new[i] or is_new[j] for i, j in later), "an edge between two old ones was made before"
    assert labels_of(len(hashes), before | later.keys()) == labels_of(len(hashes), all_pairs(hashes, 4))


@pytest.mark.parametrize("agree", [1, 2, 3, 4])
@pytest.mark.parametrize("bucket", [40, 150, 2_048])
def test_any_number_of_bands_and_any_bucket_size_find_the_same(
    monkeypatch: pytest.MonkeyPatch, agree: int, bucket: int
):
    rng = np.random.default_rng(agree)
    heads = rng.integers(0, 2**64, size=12, dtype=np.uint64)
    flips = np.bitwise_or.reduce(np.uint64(1) << rng.integers(0, 64, size=(400, 3), dtype=np.uint64), axis=1)
    hashes = np.unique(np.concatenate([heads, heads[rng.integers(0, 12, size=400)] ^ flips])).tolist()
    expected = all_pairs(hashes, 4)
    whole = hamming._bands

    def forced(free: int, radius: int, n: int) -> list[int]:
        if free != hamming.ALL_BITS:
            return whole(free, radius, n)
        return [sum(1 << int(place) for place in part) for part in np.array_split(range(64), radius + agree)]

    monkeypatch.setattr(hamming, "_bands", forced)
    monkeypatch.setattr(hamming, "BUCKET", bucket)
    assert edges_of(hashes) == expected and len(expected) > 1_000


def test_bands_are_a_partition_of_the_bits_and_grow_in_number_with_the_hashes():
    counts = []
    for n in (100, 10**5, 10**7, 10**9):
        bands = hamming._bands(hamming.ALL_BITS, 4, n)
        assert sum(bands) == hamming.ALL_BITS and sum(band.bit_count() for band in bands) == 64
        counts.append(len(bands))
    assert counts == sorted(counts) and counts[0] == 5 and counts[-1] >= 7


def test_a_hundred_thousand_equal_hashes_make_a_star_not_a_square():
    hashes = np.full(100_000, 7, dtype=np.uint64)
    hashes[-1] = 7 ^ 3
    i, _, distance = hamming_edges(hashes, np.ones(len(hashes), bool), 4)
    assert len(i) == 99_999 and (i == 0).all() and distance.tolist() == [0] * 99_998 + [2]


def test_an_old_one_stands_for_its_equals_even_when_a_new_one_comes_first():
    assert edges_of([5, 5, 5, 5 ^ 1], [True, False, True, True]) == {(0, 1): 0, (1, 2): 0, (1, 3): 1}


def test_hashes_that_share_most_of_their_bits_do_not_make_one_bucket_quadratic():
    # They differ in their last 20 bits only, so any band of the others holds them all.
    rng = np.random.default_rng(1)
    hashes = (np.uint64(0xABCDE) << np.uint64(44)) | rng.choice(2**20, size=6_000, replace=False).astype(np.uint64)
    i, j, distance = hamming_edges(hashes, np.ones(len(hashes), bool), 2)
    differ = np.bitwise_count(hashes[:300, None] ^ hashes[None, :])
    near = np.argwhere((differ <= 2) & (np.arange(300)[:, None] < np.arange(6_000)[None, :]))
    assert [(a, b) for a, b in zip(i.tolist(), j.tolist(), strict=True) if a < 300] == [
        tuple(pair) for pair in near.tolist()
    ]
    assert distance.max() == 2


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_hashes_have_no_edge(n: int):
    assert edges_of([3] * n) == {}


def test_a_radius_out_of_range_is_refused():
    with pytest.raises(ValueError, match="between 0 and 16"):
        edges_of([1, 2], radius=17)


FLAT_HASHES = [0, 1, 3, 7, 2**40, 2**40 + 1]
# (hash, colours or None, the run that brings the row); most colours are few, so that classes have several rows.
LEVELS = st.one_of(st.sampled_from([10, 20, 30, 90]), st.integers(0, 255))
COLOURED = st.lists(
    st.tuples(st.sampled_from(FLAT_HASHES), st.none() | st.tuples(LEVELS, LEVELS), st.integers(0, 2)), max_size=40
)


def colour_edges(rows: list[tuple], upto: int, radius: int) -> dict[tuple[int, int], int]:
    """Compare the rows of runs 0 to ``upto`` where those of run ``upto`` are new."""
    chosen = [n for n, (_, _, run) in enumerate(rows) if run <= upto]
    hashes, new = (
        np.array([rows[n][0] for n in chosen], np.uint64),
        np.array([rows[n][2] == upto for n in chosen], bool),
    )
    flat = np.array([place for place, n in enumerate(chosen) if rows[n][1] is not None], np.int64)
    colours = np.array([rows[chosen[place]][1] for place in flat], np.uint8).reshape(len(flat), 2)
    i, j, distance = coloured_edges(hashes, new, radius, flat, colours)
    assert (i < j).all() and (new[i] | new[j]).all()
    assert np.array_equal(np.bitwise_count(hashes[i] ^ hashes[j]), distance)
    found = {(chosen[a], chosen[b]): d for a, b, d in zip(i.tolist(), j.tolist(), distance.tolist(), strict=True)}
    assert [*found] == sorted(found) and len(found) == len(i), "in order, each once"
    return found


@given(COLOURED, st.integers(0, 2))
@examples(300)
def test_flat_rows_have_edges_by_colour_too_and_run_by_run_they_connect_the_same(rows: list, radius: int):
    expected = all_pairs([row[0] for row in rows], radius, [row[1] for row in rows])
    connected = labels_of(len(rows), expected)
    at_once = colour_edges([(*row[:2], 0) for row in rows], 0, radius)
    assert at_once.items() <= expected.items() and labels_of(len(rows), at_once) == connected
    later = [colour_edges(rows, run, radius) for run in range(3)]
    assert all(found.items() <= expected.items() for found in later)
    assert labels_of(len(rows), set().union(*later)) == connected


def of_colours(hashes: list[int], colours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Give every hash all colours."""
    return np.repeat(np.array(hashes, np.uint64), len(colours)), np.tile(colours, (len(hashes), 1))


@pytest.mark.parametrize("n_hashes", [1, 20])
def test_the_comparison_of_colours_follows_what_is_new(monkeypatch: pytest.MonkeyPatch, n_hashes: int):
    rng = np.random.default_rng(3)
    bits = rng.permutation([(1 << a) | (1 << b) for a in range(7) for b in range(a)])[:n_hashes]
    hashes, colours = of_colours(bits.tolist(), rng.integers(0, 256, (12_000 // n_hashes, 12), dtype=np.uint8))
    hashes, colours = np.append(hashes, np.uint64(1 << 60)), np.concatenate([colours, colours[:1]])
    seen, calls, near = [], 0, hamming._near

    def counted(hashes: np.ndarray, is_new: np.ndarray, radius: int, *free: int):
        seen.append(int(is_new.sum()))
        return near(hashes, is_new, radius, *free)

    def call(frame, event: str, argument) -> None:
        nonlocal calls
        calls += 1

    monkeypatch.setattr(hamming, "_near", counted)
    is_new = np.arange(len(hashes)) == len(hashes) - 1
    sys.setprofile(call)
    try:
        i, _, _ = coloured_edges(hashes, is_new, 4, np.arange(len(hashes)), colours)
    finally:
        sys.setprofile(None)
    assert len(i) == n_hashes
    assert max(seen) == 1, "hashes without anything new count as new"
    assert calls < 10_000, "a call for each old row"


@pytest.mark.parametrize("at_once", [7, 256])
def test_copies_of_many_colours_are_found_under_another_hash_too(monkeypatch: pytest.MonkeyPatch, at_once: int):
    monkeypatch.setattr(hamming, "ENDS_AT_ONCE", at_once)
    monkeypatch.setattr(hamming, "ROWS_AT_ONCE", at_once)
    hashes, colours = of_colours([2, 3], np.random.default_rng(5).integers(0, 256, (400, 12), dtype=np.uint8))
    for new in (np.ones(800, bool), np.arange(800) < 400, np.arange(800) >= 400):
        i, j, distance = coloured_edges(hashes, new, 4, np.arange(800), colours)
        assert i.tolist() == list(range(400)) and (j - i == 400).all() and (distance == 1).all()


def test_each_class_has_one_edge_for_all_rows_near_it_that_have_no_colours():
    near = [1 << a | 1 << b for a in range(7) for b in range(a)][:20]
    colours = [(n % 16 * 16, n // 16 * 8) for n in range(500)]
    rows = [(0, pair, 0) for pair in colours] + [(each, None, 1) for each in near]
    first, second = colour_edges(rows, 0, 4), colour_edges(rows, 1, 4)
    assert len([pair for pair in second if pair[0] < 500 <= pair[1]]) == 500 + len(near) - 1
    assert len({*labels_of(len(rows), first | second)}) == 1
    # What comes later needs an edge each, however many classes and rows there are.
    rows += [(1 << 40, None, 2), (0, (255, 0), 3)]
    assert len([pair for pair in colour_edges(rows, 2, 4) if pair[0] < 500]) == 1
    assert len([pair for pair in colour_edges(rows, 3, 4) if pair[0] >= 500]) == 1
