"""Slow twin of ops/whole/hamming.py: every pair is looked at."""

from collections.abc import Sequence
from itertools import combinations


def all_pairs(
    hashes: list[int], radius: int, colours: Sequence[Sequence[int] | None] = ()
) -> dict[tuple[int, int], int]:
    """{(i, j): distance} of all pairs i < j at most ``radius`` bits apart, and 14 levels if both have ``colours``."""
    distances = {(i, j): (hashes[i] ^ hashes[j]).bit_count() for i, j in combinations(range(len(hashes)), 2)}
    near = {pair: distance for pair, distance in distances.items() if distance <= radius}
    return {pair: distance for pair, distance in near.items() if not colours or _alike(*(colours[n] for n in pair))}


def _alike(one: Sequence[int] | None, other: Sequence[int] | None) -> bool:
    """Return whether colours are near; without colours everything is."""
    return one is None or other is None or max(abs(a - b) for a, b in zip(one, other, strict=True)) <= 14
