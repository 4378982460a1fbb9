"""Find pairs of 64-bit hashes that differ in few bits, without comparing all pairs.

By the pigeonhole principle: if the 64 bits are divided into ``radius + agree`` bands, two hashes at most ``radius``
bits apart agree in at least ``agree`` of the bands. For each choice of ``agree`` bands, the hashes are sorted by the
bits of these bands, and only hashes with equal bits are compared. More bands make longer keys and smaller buckets, but
more choices. ``agree`` grows with the number of hashes (1: 5 tables of some 13 bits at radius 4; 4: 70 tables of 32
bits), which keeps the work near linear.

`coloured_edges` tells flat pictures apart that differ in colour only. `near_in_order` finds the pairs of a sort order
that is given, such as that of the bands of sentences' signatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import combinations
from math import comb
from operator import or_

import numpy as np

VERSION = 1  # increase when other pairs are found, rare ones aside
ALL_BITS = (1 << 64) - 1
# A bucket with more hashes than this is divided again by the bits that its key has not used.
BUCKET = 2_048
# Mean colours of 8 x 8 cells of copies differ by up to 13 levels of 255 at JPEG's quality 20, by 9 at 40; of 200 flat
# shapes in another random colour, 5 % differ by less than 14.
FURTHEST_COLOUR = 14
COLOURS = 256
Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def hamming_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int, is_last: np.ndarray | None = None) -> Edges:
    """Find the pairs of hashes at most ``radius`` bits apart of which at least one is new.

    Returns (i, j, distance) int64 with i < j, sorted. ``hashes`` is (n,) uint64, ``is_new`` (n,) bool.

    Equal hashes (such as of thousands of white images) are not paired with each other. One of them, the first old one
    or else the first, is paired with every new one at distance 0, and only it has edges to other hashes. Every pair of
    distinct hashes within ``radius`` has its edge, so the connected components equal those of all pairs. A row of
    ``is_last`` (n,) bool represents its hash only if no other row has it. Raises ValueError if ``radius`` is outside
    [0, 16].
    """
    hashes, is_new = np.asarray(hashes, dtype=np.uint64), np.asarray(is_new, dtype=bool)
    if not 0 <= radius <= 16:
        raise ValueError(f"radius {radius}: a Hamming radius is between 0 and 16 bits of 64")
    # Sort equal hashes together, old before new, then by index: the first represents them all.
    is_last = np.zeros(len(hashes), bool) if is_last is None else is_last
    order = np.lexsort((np.arange(len(hashes)), is_new, is_last, hashes))
    starts = np.r_[True, hashes[order][1:] != hashes[order][:-1]] if len(order) else np.empty(0, dtype=bool)
    head = order[starts]
    heads = head[np.cumsum(starts) - 1]
    star = ~starts & (is_new[order] | is_new[heads])
    # If both ends represent an old hash, an earlier run has found the edge.
    is_fresh = is_new[head]
    if is_last.any():  # such rows are no duplicates of the one that represents them: any new one counts
        is_fresh = is_fresh | is_last[head] & np.logical_or.reduceat(is_new[order], np.flatnonzero(starts))
    left, right, distance = _near(hashes[head], is_fresh, radius)
    i = np.concatenate([heads[star], head[left]])
    j = np.concatenate([order[star], head[right]])
    far = np.concatenate([np.zeros(int(star.sum()), dtype=np.int64), distance])
    i, j = np.minimum(i, j), np.maximum(i, j)
    by_ends = np.lexsort((j, i))
    return i[by_ends], j[by_ends], far[by_ends]


def coloured_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int, flat: np.ndarray, colours: np.ndarray) -> Edges:
    """Find edges as `hamming_edges`, but between two rows of ``flat`` only if their colours are near too.

    ``flat`` is (m,) int64, rows of ``hashes``; ``colours`` is (m, c) uint8, their mean colours. Colours are near if no
    value differs by more than FURTHEST_COLOUR. Equal hash and colours are one class, which one row represents. Of more
    than COLOURS classes of one hash, each is compared with the next COLOURS in the order of their colours.
    """
    if not len(flat):
        return hamming_edges(hashes, is_new, radius)
    is_flat = np.zeros(len(hashes), bool)
    is_flat[flat] = True
    i, j, distance = hamming_edges(hashes, is_new, radius, is_last=is_flat)
    kept = ~(is_flat[i] & is_flat[j])
    i, j, distance = _to_every_flat(hashes, flat, is_flat, (i[kept], j[kept], distance[kept]))
    left, right, far = _flat_edges(hashes[flat], is_new[flat], radius, colours)
    i, j, distance = np.r_[i, flat[left]], np.r_[j, flat[right]], np.r_[distance, far]
    fresh = is_new[i] | is_new[j]
    both = np.stack([np.minimum(i, j), np.maximum(i, j), distance])[:, fresh]
    i, j, distance = np.unique(both, axis=1)
    return i, j, distance


def _to_every_flat(hashes: np.ndarray, flat: np.ndarray, is_flat: np.ndarray, edges: Edges) -> Edges:
    """Repeat each edge between a flat row and another for all flat rows of that hash."""
    i, j, distance = edges
    one, other = np.where(is_flat[i], i, j), np.where(is_flat[i], j, i)
    order = flat[np.argsort(hashes[flat], kind="stable")]
    first, last = (np.searchsorted(hashes[order], hashes[one], side) for side in ("left", "right"))
    n = np.where(is_flat[one], last - first, 1)
    offsets = np.arange(n.sum()) - np.repeat(np.cumsum(n) - n, n)
    ones = np.repeat(one, n)
    flats = order[np.minimum(np.repeat(first, n) + offsets, len(order) - 1)]
    return np.where(is_flat[ones], flats, ones), np.repeat(other, n), np.repeat(distance, n)


def _flat_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int, colours: np.ndarray) -> Edges:
    """Find the pairs of rows with near hashes and near colours, at least one of each pair new."""
    order = np.argsort(is_new, kind="stable")  # old rows first: they represent their class
    both = np.concatenate([hashes.astype(">u8").view(np.uint8).reshape(-1, 8), colours], axis=1)[order]
    rows = np.ascontiguousarray(both).view(f"V{both.shape[1]}").reshape(-1)
    _, first, member = np.unique(rows, return_index=True, return_inverse=True)
    heads = order[first]  # sorted by hash, then colours
    star = is_new[order] & (heads[member] != order)
    found = [(heads[member][star], order[star], np.zeros(int(star.sum()), np.int64))]
    distinct, starts, sizes = np.unique(hashes[heads], return_index=True, return_counts=True)
    left, right, distance = _near(distinct, np.ones(len(distinct), bool), radius)
    several = np.flatnonzero(sizes > 1)
    runs = np.r_[several, left], np.r_[several, right], np.r_[np.zeros_like(several), distance]
    for a, b, far in zip(*runs, strict=True):
        ends, others = heads[starts[a] : starts[a] + sizes[a]], heads[starts[b] : starts[b] + sizes[b]]
        for step, end in enumerate(ends):
            near = others[step + 1 : step + 1 + COLOURS] if a == b else others[:COLOURS]
            near = near[is_new[near] | is_new[end]]
            gap = np.abs(colours[near].astype(np.int16) - colours[end]).max(axis=1, initial=0)
            near = near[gap <= FURTHEST_COLOUR]
            found.append((np.full(len(near), end), near, np.full(len(near), far)))
    return _joined(found)


def _near(hashes: np.ndarray, is_new: np.ndarray, radius: int, free: int = ALL_BITS) -> Edges:
    """Find all pairs of distinct ``hashes`` within ``radius``, at least one of each pair new.

    All hashes have equal bits outside the mask ``free``.
    """
    if radius == 0 or len(hashes) < 2 or not is_new.any():
        return _none()
    # Bits that all hashes share distinguish none of them.
    free &= int(np.bitwise_or.reduce(hashes ^ hashes[0]))
    bands = _bands(free, radius, len(hashes))
    found = []
    for chosen in combinations(range(len(bands)), len(bands) - radius):
        key = reduce(or_, (bands[place] for place in chosen))
        for left, right in _equal(hashes, key, is_new, radius, free & ~key):
            differ = hashes[left] ^ hashes[right]
            kept = _first_choice(differ, bands, chosen)
            found.append((left[kept], right[kept], np.bitwise_count(differ[kept]).astype(np.int64)))
    return _joined(found)


def _bands(free: int, radius: int, n: int) -> list[int]:
    """Divide the free bits into bands (bit masks), as many as minimise the estimated cost for ``n`` hashes."""
    places = [place for place in range(64) if free >> place & 1]

    def cost(agree: int) -> float:  # sorting one hash costs about 20 comparisons
        bits = len(places) * agree / (radius + agree)
        return comb(radius + agree, agree) * (20 * n + n * n / 2 ** (bits + 1))

    most = max(1, min(6, len(places) - radius))
    bands = radius + min(range(1, most + 1), key=cost)
    return [sum(1 << int(place) for place in part) for part in np.array_split(places, bands)]


def _equal(hashes: np.ndarray, key: int, is_new: np.ndarray, radius: int, free: int):
    """Yield (left, right) of pairs within ``radius`` that have equal bits under ``key``, at least one hash being new.

    A bucket with more than BUCKET hashes is searched recursively.
    """
    order, starts = _sorted(hashes, key)
    sizes = np.diff(np.r_[starts, len(order)])
    wanted = (sizes > 1) & np.logical_or.reduceat(is_new[order], starts)
    large = wanted & (sizes > BUCKET)
    for start, size in zip(starts[large], sizes[large], strict=True):
        bucket = order[start : start + size]
        if free.bit_count() <= radius:  # all pairs of the bucket are within the radius
            yield from _all_pairs(bucket, is_new)
            continue
        left, right, _ = _near(hashes[bucket], is_new[bucket], radius, free)
        yield bucket[left], bucket[right]
    small = np.repeat(wanted & (sizes <= BUCKET), sizes)
    bucket_of = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)[small]
    order = order[small]
    # Copy the hashes in comparison order: reading them at their original positions would miss the cache twice a pair.
    for left, right in _pairs_within_runs(bucket_of, hashes[order], is_new[order], len(order), radius):
        yield order[left], order[right]


def near_in_order(
    runs: np.ndarray, sketches: np.ndarray, is_new: np.ndarray, window: int, furthest: int, known: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Find the pairs of rows of one run, within ``window`` positions and ``furthest`` bits, at least one of them new.

    ``runs`` is (n,) of any type, with equal values adjacent; ``sketches`` is (n,) uint64; ``is_new`` is (n,) bool.
    Returns (left, right), int64 positions with left < right. No pair is reported among the first ``known`` rows, which
    repeat the end of the previous block. The work is at most ``window`` times the number of rows that share a run.
    """
    none = np.empty(0, np.int64)
    found = [(none, none), *_pairs_within_runs(runs, sketches, is_new, window, furthest)]
    left, right = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return left[right >= known], right[right >= known]


def _pairs_within_runs(
    runs: np.ndarray, hashes: np.ndarray, is_new: np.ndarray, window: int, radius: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (left, right) of rows that share a run and differ in at most ``radius`` bits.

    Neighbours come first, then rows two apart, up to ``window``.
    """
    places = np.arange(len(runs))
    for step in range(1, window + 1):
        places = places[places + step < len(runs)]
        places = places[runs[places] == runs[places + step]]
        if not len(places):
            return
        near = places[np.bitwise_count(hashes[places] ^ hashes[places + step]) <= radius]
        near = near[is_new[near] | is_new[near + step]]
        yield near, near + step


def _sorted(hashes: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort rows by their bits under ``key``, ties by row: (order, starts of each run of equal bits).

    The bits and the row number share one integer if they fit: sorting integers takes a tenth of the time of sorting
    rows.
    """
    row_bits = max(1, (len(hashes) - 1).bit_length())
    if key.bit_count() + row_bits > 64:
        masked = hashes & np.uint64(key)
        order = np.argsort(masked, kind="stable")
        masked = masked[order]
    else:
        packed = _gathered(hashes, key) << np.uint64(row_bits) | np.arange(len(hashes), dtype=np.uint64)
        packed.sort()
        order = (packed & np.uint64((1 << row_bits) - 1)).astype(np.int64)
        masked = packed >> np.uint64(row_bits)
    return order, np.flatnonzero(np.r_[True, masked[1:] != masked[:-1]])


def _gathered(hashes: np.ndarray, key: int) -> np.ndarray:
    """Move the bits under ``key`` to the low end in order, one run of bits at a time."""
    found = np.zeros_like(hashes)
    place = filled = 0
    while key >> place:
        if not key >> place & 1:
            place += 1
            continue
        length = ((key >> place) + 1 & -((key >> place) + 1)).bit_length() - 1
        found |= (hashes >> np.uint64(place) & np.uint64((1 << length) - 1)) << np.uint64(filled)
        place, filled = place + length, filled + length
    return found


def _all_pairs(bucket: np.ndarray, is_new: np.ndarray):
    """Yield (left, right) of all pairs of a bucket with at least one new hash."""
    for place, row in enumerate(bucket[:-1]):
        others = bucket[place + 1 :]
        others = others if is_new[row] else others[is_new[others]]
        yield np.full(len(others), row), others


def _first_choice(differ: np.ndarray, bands: list[int], chosen: tuple[int, ...]) -> np.ndarray:
    """Return whether ``chosen`` are the first bands in which each pair agrees, so that a pair is reported only once."""
    first = np.ones(len(differ), dtype=bool)
    for place in range(chosen[-1]):
        if place not in chosen:
            first &= (differ & np.uint64(bands[place])) != 0
    return first


def _joined(found: list[Edges]) -> Edges:
    """Concatenate lists of edges."""
    if not found:
        return _none()
    left, right, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    return left, right, distance


def _none() -> Edges:
    """Return empty edges."""
    empty = np.empty(0, dtype=np.int64)
    return empty, empty, empty
