"""Find pairs of 64-bit hashes that differ in few bits, without comparing all pairs.

By the pigeonhole principle: if the 64 bits are divided into ``radius + agree`` bands, two hashes at most ``radius``
bits apart agree in at least ``agree`` of the bands. For each choice of ``agree`` bands, the hashes are sorted by the
bits of these bands, and only hashes with equal bits are compared. More bands make longer keys and smaller buckets, but
more choices. ``agree`` grows with the number of hashes (1: 5 tables of some 13 bits at radius 4; 4: 70 tables of 32
bits), which keeps the work near linear.

`coloured_edges` tells flat pictures apart that differ in colour only. `near_in_order` finds the pairs of a sort order
that is given, such as that of the bands of sentences' signatures.
"""

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
# Every 13th value is compared first: it tells most pictures apart, in a quarter of the time of all 192.
FEW = 13
# The bits of the columns 1, 3, 5 and 7 of the 8 x 8 coefficients of a perceptual hash.
ODD_COLUMNS = 0x5555_5555_5555_5555
# 256 classes with 513 others of 192 bytes take 25 MB at once.
ENDS_AT_ONCE, ROWS_AT_ONCE = 256, 65_536
Edges = tuple[np.ndarray, np.ndarray, np.ndarray]


def hamming_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int, is_last: np.ndarray | None = None) -> Edges:
    """Find the pairs of hashes at most ``radius`` bits apart of which at least one is new.

    Returns (i, j, distance) int64 with i < j, sorted. ``hashes`` is (n,) uint64, ``is_new`` (n,) bool.

    Equal hashes (such as of thousands of white images) are not paired with each other. One, the first old one or else
    the first, is paired with every new one at distance 0, and only it has edges to other hashes. Every pair of distinct
    hashes within ``radius`` has its edge, so the connected components equal those of all pairs. A row of ``is_last``
    (n,) bool represents its hash only if no other row has it. Raises ValueError if ``radius`` is outside [0, 16].
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
    value differs by more than FURTHEST_COLOUR. Equal hash and colours are one class, which one row represents.

    Each class is compared with the COLOURS classes before and after its place in the order of colours, of its own hash
    and of each near one. Of a hash with more classes, near colours further away in that order are not found.
    If only flat rows have a hash, one of the other rows near it is paired with each class, the rest with one class, so
    the components equal those of all pairs. The work beyond sorting follows the new rows.
    """
    if not len(flat):
        return hamming_edges(hashes, is_new, radius)
    is_flat, represents = np.zeros(len(hashes), bool), np.ones(len(hashes), bool)
    is_flat[flat], represents[flat] = True, False
    (left, right, far), heads = _flat_edges(hashes[flat], is_new[flat], radius, colours)
    classes = flat[heads]
    represents[classes] = True
    i, j, distance = hamming_edges(hashes, is_new, radius, is_last=is_flat)
    kept = ~(is_flat[i] & is_flat[j]) & represents[i] & represents[j]
    i, j, distance = i[kept], j[kept], distance[kept]
    mixed = (is_flat[i] != is_flat[j]) & (distance > 0)
    ends = np.where(is_flat[i], j, i)[mixed], np.where(is_flat[i], i, j)[mixed], distance[mixed]
    one, other, apart = _one_to_each_class(hashes, is_new, radius, is_flat, classes, ends)
    i, j = np.r_[i[~mixed], one, flat[left]], np.r_[j[~mixed], other, flat[right]]
    distance = np.r_[distance[~mixed], apart, far]
    fresh = is_new[i] | is_new[j]
    i, j, distance = np.minimum(i, j)[fresh], np.maximum(i, j)[fresh], distance[fresh]
    by_ends = np.lexsort((j, i))
    return i[by_ends], j[by_ends], distance[by_ends]


def mirrored_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int) -> Edges:
    """Find the pairs of perceptual hashes, one of them new, at most ``radius`` bits apart once one picture is mirrored.

    A mirrored picture has the DCT coefficients of odd horizontal frequency with the other sign, and a median near 0, so
    these bits turn over: no pixel is read. Returns (i, j, distance) int64 with i < j, enough to connect all such pairs
    together with the edges of `hamming_edges`. Takes twice the memory of that.
    """
    both, n = np.concatenate([hashes, hashes ^ np.uint64(ODD_COLUMNS)]), len(hashes)
    left, right, distance = hamming_edges(both, np.tile(is_new, 2), radius)
    crosses = (left < n) & (right >= n) & (left != right - n)
    ends = np.sort(np.stack([left, right % n])[:, crosses], axis=0)
    pairs, first = np.unique(ends, axis=1, return_index=True)
    return pairs[0], pairs[1], distance[crosses][first]


def _one_to_each_class(
    hashes: np.ndarray, is_new: np.ndarray, radius: int, is_flat: np.ndarray, classes: np.ndarray, edges: Edges
) -> Edges:
    """Pair one row of those near a flat hash with each class of it, and leave the others at the class they have.

    ``edges`` are (row that is not flat, flat row, distance); ``classes`` are flat rows sorted by hash. An old row comes
    first, then the nearest one. If an earlier comparison has joined the classes, a new row needs one edge only.
    """
    one, other, distance = edges
    order = np.lexsort((one, distance, is_new[one], other))
    one, other, distance = one[order], other[order], distance[order]
    first, last = (np.searchsorted(hashes[classes], hashes[other], side) for side in ("left", "right"))
    joins = np.r_[True, other[1:] != other[:-1]][: len(other)] & (last - first > 1)
    # Old rows near an old class have no edge here unless the class's hash has something new.
    unsure = joins & is_new[one] & ~is_new[other]
    if unsure.any():
        asked = np.unique(hashes[other[unsure]])
        old = np.unique(hashes[~is_flat & ~is_new])
        left, right, _ = _near(np.r_[asked, old], np.arange(len(asked) + len(old)) < len(asked), radius)
        met = np.minimum(left, right)[np.maximum(left, right) >= len(asked)]
        joins[unsure] &= ~np.isin(hashes[other[unsure]], asked[met])
    n = (last - first)[joins]
    to_each = np.repeat(one[joins], n), classes[_spans(first[joins], n)], np.repeat(distance[joins], n)
    return _concatenate([(one[~joins], other[~joins], distance[~joins]), to_each])


def _flat_edges(hashes: np.ndarray, is_new: np.ndarray, radius: int, colours: np.ndarray) -> tuple[Edges, np.ndarray]:
    """Find the pairs of rows with near hashes and near colours, at least one of each pair new, and the classes.

    Returns (edges, the row that represents each class, sorted by hash, then colours).
    """
    rank = _ranks(colours)
    order = np.lexsort((is_new, rank, hashes))  # old rows first: they represent their class
    starts = np.r_[True, (hashes[order][1:] != hashes[order][:-1]) | (rank[order][1:] != rank[order][:-1])]
    heads = order[starts]
    member_of = heads[np.cumsum(starts) - 1]
    star = ~starts & is_new[order]
    found = [(member_of[star], order[star], np.zeros(int(star.sum()), np.int64))]
    distinct, first, sizes = np.unique(hashes[heads], return_index=True, return_counts=True)
    group = np.repeat(np.arange(len(distinct)), sizes)
    new = np.flatnonzero(is_new[heads])
    n_new = np.bincount(group[new], minlength=len(distinct))
    left, right, distance = _near(distinct, n_new > 0, radius)
    own = np.flatnonzero((n_new > 0) & (sizes > 1))
    runs, others, far = np.r_[own, left, right], np.r_[own, right, left], np.r_[0 * own, distance, distance]
    # Each new class of a run looks for its place in the order of colours of another.
    run = np.repeat(np.arange(len(runs)), n_new[runs])
    ends = new[_spans((np.cumsum(n_new) - n_new)[runs], n_new[runs])]
    far, others = far[run], others[run]
    n_ranks = int(rank.max(initial=0)) + 1
    place = np.searchsorted(group * n_ranks + rank[heads], others * n_ranks + rank[heads[ends]])
    low = np.maximum(first[others], place - COLOURS)
    widths = np.minimum(first[others] + sizes[others], place + COLOURS + 1) - low
    few = np.stack([colours[heads, value] for value in range(0, colours.shape[1], FEW)], axis=1)
    for at in range(0, len(ends), ENDS_AT_ONCE):
        some = slice(at, at + ENDS_AT_ONCE)
        near, end = _spans(low[some], widths[some]), np.repeat(ends[some], widths[some])
        kept = (group[near] != group[end]) | (near > end) | ~is_new[heads[near]]
        kept[kept] = _are_near(few[near[kept]], few[end[kept]])
        kept[kept] = _are_near(colours[heads[near[kept]]], colours[heads[end[kept]]])
        if kept.any():
            found.append((heads[end[kept]], heads[near[kept]], np.repeat(far[some], widths[some])[kept]))
    left, right, far = _concatenate(found)
    # Two new classes of different hashes find each other from both ends.
    _, once = np.unique(np.minimum(left, right) * len(hashes) + np.maximum(left, right), return_index=True)
    return (left[once], right[once], far[once]), heads


def _are_near(colours: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return whether no value of a row differs by more than FURTHEST_COLOUR."""
    gap = np.maximum(colours, others) - np.minimum(colours, others)
    return np.all(gap <= FURTHEST_COLOUR, axis=1)


def _ranks(colours: np.ndarray) -> np.ndarray:
    """Rank rows from 0, equal ones alike. Only indexes are sorted: a copy would take 200 bytes a row."""
    rows = np.ascontiguousarray(colours).view(f"V{colours.shape[1]}").reshape(-1)
    order = np.argsort(rows, kind="stable")
    differs = np.zeros(len(rows), np.int64)
    for at in range(1, len(rows), ROWS_AT_ONCE):
        some = order[at - 1 : at + ROWS_AT_ONCE]
        differs[at : at + ROWS_AT_ONCE] = (colours[some[1:]] != colours[some[:-1]]).any(axis=1)
    ranks = np.empty(len(rows), np.int64)
    ranks[order] = np.cumsum(differs)
    return ranks


def _spans(first: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Concatenate the ranges of ``sizes`` integers that begin at ``first``."""
    return np.arange(sizes.sum()) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)


def _near(hashes: np.ndarray, is_new: np.ndarray, radius: int, free: int = ALL_BITS) -> Edges:
    """Find all pairs of distinct ``hashes`` within ``radius``, one of each new; bits outside ``free`` are all equal."""
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
    return _concatenate(found)


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
    """Yield (left, right) within ``radius``, equal under ``key``, one new; divide buckets of more than BUCKET again."""
    order, starts = _sort_by_key(hashes, key)
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
    """Find pairs of rows of one run that are at most ``window`` positions and ``furthest`` sketch bits apart.

    At least one row of a pair is new. ``runs`` is (n,) of any type, with equal values (a run) adjacent; ``sketches`` is
    (n,) uint64; ``is_new`` is (n,) bool. Returns (left, right), int64 positions with left < right. No pair is reported
    among the first ``known`` rows, which repeat the end of the previous block. The work is at most ``window`` times the
    number of rows that share a run.
    """
    none = np.empty(0, np.int64)
    found = [(none, none), *_pairs_within_runs(runs, sketches, is_new, window, furthest)]
    left, right = (np.concatenate(ends) for ends in zip(*found, strict=True))
    return left[right >= known], right[right >= known]


def _pairs_within_runs(
    runs: np.ndarray, hashes: np.ndarray, is_new: np.ndarray, window: int, radius: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (left, right) of rows of one run at most ``radius`` bits apart, neighbours first, up to ``window``."""
    places = np.arange(len(runs))
    for step in range(1, window + 1):
        places = places[places + step < len(runs)]
        places = places[runs[places] == runs[places + step]]
        if not len(places):
            return
        near = places[np.bitwise_count(hashes[places] ^ hashes[places + step]) <= radius]
        near = near[is_new[near] | is_new[near + step]]
        yield near, near + step


def _sort_by_key(hashes: np.ndarray, key: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort rows by their bits under ``key``, ties by row: (order, starts of each run of equal bits).

    Bits and row number share one integer if they fit: sorting integers takes a tenth of the time of sorting rows.
    """
    row_bits = max(1, (len(hashes) - 1).bit_length())
    if key.bit_count() + row_bits > 64:
        masked = hashes & np.uint64(key)
        order = np.argsort(masked, kind="stable")
        masked = masked[order]
    else:
        packed = _gather_bits(hashes, key) << np.uint64(row_bits) | np.arange(len(hashes), dtype=np.uint64)
        packed.sort()
        order = (packed & np.uint64((1 << row_bits) - 1)).astype(np.int64)
        masked = packed >> np.uint64(row_bits)
    return order, np.flatnonzero(np.r_[True, masked[1:] != masked[:-1]])


def _gather_bits(hashes: np.ndarray, key: int) -> np.ndarray:
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


def _concatenate(found: list[Edges]) -> Edges:
    """Concatenate lists of edges."""
    if not found:
        return _none()
    left, right, distance = (np.concatenate(column) for column in zip(*found, strict=True))
    return left, right, distance


def _none() -> Edges:
    """Return empty edges."""
    empty = np.empty(0, dtype=np.int64)
    return empty, empty, empty
