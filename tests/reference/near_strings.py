"""Slow twin of ops/text/minhash.py and catalog/pending/duplicate_edges.py: the 3-grams of every pair."""

from itertools import combinations


def trigrams(text: str) -> set[str]:
    """The runs of three characters of a lower-case text; of a shorter one the text itself."""
    return {text[at : at + 3] for at in range(len(text) - 2)} or {text}


def all_pairs(texts: list[str], threshold: float) -> dict[tuple[int, int], float]:
    """{(i, j): Jaccard similarity} of all pairs i < j with at least ``threshold``."""
    sets = [trigrams(text) for text in texts]
    found = {}
    for i, j in combinations(range(len(texts)), 2):
        share = len(sets[i] & sets[j]) / len(sets[i] | sets[j])
        if share >= threshold:
            found[i, j] = share
    return found
