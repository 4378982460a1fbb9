"""Slow twin of ops/whole/hamming.py: every pair is looked at."""

from itertools import combinations


def all_pairs(hashes: list[int], radius: int) -> dict[tuple[int, int], int]:
    """{(i, j): distance} of all pairs i < j at most ``radius`` bits apart."""
    distances = {(i, j): (hashes[i] ^ hashes[j]).bit_count() for i, j in combinations(range(len(hashes)), 2)}
    return {pair: distance for pair, distance in distances.items() if distance <= radius}
