"""Name clusters of pictures by the words that distinguish their tags and texts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping

from pairmill.ops.text.topics import FUNCTION_WORDS, WORD

TAG_WEIGHT = 3  # a tag describes the picture, a word of a sentence only may


def cluster_names(rows: Iterable[tuple[int, list[str], str]], words: int = 3) -> Mapping[int, str]:
    """Return a name of at most ``words`` terms for each cluster of (cluster, tags, text) rows; '' without any term.

    Terms are ranked as in c-TF-IDF (Grootendorst 2022, arXiv:2203.05794): frequency in the cluster × ln(1 + A / f),
    with A the mean number of terms a cluster and f the term's frequency in all. A term counts once a picture.
    """
    counts: dict[int, Counter[str]] = {}
    for cluster, tags, text in rows:
        of_picture = dict.fromkeys((w for w in WORD.findall(text.lower()) if w not in FUNCTION_WORDS), 1)
        of_picture |= {tag.lower(): TAG_WEIGHT for tag in tags}
        counts.setdefault(cluster, Counter()).update(of_picture)
    in_all = Counter[str]()
    for counter in counts.values():
        in_all.update(counter)
    mean = in_all.total() / max(1, len(counts))

    def name(counter: Counter[str]) -> str:
        weight = {term: n * math.log(1 + mean / in_all[term]) for term, n in counter.items() if n > 1}
        return ", ".join(_distinct(sorted(weight, key=lambda term: (-weight[term], term)), words))

    return {cluster: name(counter) for cluster, counter in counts.items()}


def _distinct(terms: list[str], most: int) -> list[str]:
    """Return the first ``most`` terms that are no part of one before, nor contain it: "fox" after "red fox"."""
    found: list[str] = []
    for term in terms:
        if len(found) < most and not any(term in other or other in term for other in found):
            found.append(term)
    return found
