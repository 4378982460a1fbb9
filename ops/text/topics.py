"""Find topics in texts by latent Dirichlet allocation (LDA), and words of capitalised names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

WORD = re.compile(r"[^\W\d_]{3,}")
NAME = re.compile(r"[A-Z][\w’'-]+(?: [A-Z][\w’'-]+)*")
# A sentence's first word is capitalised too, and so is that after a full stop, a quotation mark or a colon.
BEGINS = re.compile(r"(?:^|[.!?:;…\"“”‘(\[]\s*)$")
# English words that say nothing of a topic. In other languages MOST_TEXTS alone removes such words.
_FUNCTION_WORDS = """
about above after again all also although always and another any are around because been before behind being
below between both but can could did does doing down during each either else even ever every few for from had
has have having her here hers him his how however into its itself just least less like made make many may more
most much must near neither never next nor not nothing now off often once one only onto other others our ours
out over own per rather same shall she should since some still such than that the their theirs them then there
these they this those three through too toward two under until upon use used using very was were what when where
whether which while who whom whose why will with within without would yet you your yours
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
MOST_TEXTS = 0.3  # a word in a larger share of texts separates no topics
LEAST_TEXTS = 2
MOST_WORDS = 2_000  # vocabulary: the most frequent words
ALPHA, ETA = 0.1, 0.01  # Dirichlet parameters of topics in a text and of words in a topic (Asuncion et al. 2009)
ROUNDS = 40


@dataclass(frozen=True)
class Topic:
    """A topic: its ``share`` of all words, its likeliest ``words``, and the ``texts`` of which it has most words."""

    share: float
    words: tuple[str, ...]
    texts: int


def topics(texts: Sequence[str], most: int, shown: int = 8, seed: int = 0) -> list[Topic]:
    """Fit at most ``most`` topics, one per ten texts, and return them by share; [] without repeated words.

    Memory: some 12 bytes a topic and distinct word of a text; 2,000 texts of 40 words with 30 topics take 0.4 CPU s.
    """
    vocabulary, counts = word_counts(texts)
    n = min(most, len(texts) // 10)
    if not len(counts) or n < 2:
        return []
    of_text, of_word = allocate(counts, n, (len(texts), len(vocabulary)), seed)
    sizes = of_word.sum(0)
    best = np.bincount(of_text[np.unique(counts[:, 0])].argmax(1), minlength=n)
    found = []
    for topic in np.argsort(-sizes, kind="stable"):
        words = np.argsort(-of_word[:, topic], kind="stable")[:shown]
        found.append(Topic(float(sizes[topic] / sizes.sum()), tuple(vocabulary[w] for w in words), int(best[topic])))
    return found


def word_counts(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the vocabulary and (text, word, count) rows (m, 3), sorted by text.

    Words are lower case. A word must be in LEAST_TEXTS texts and in at most MOST_TEXTS of them.
    """
    of_texts = [Counter(w for w in WORD.findall(text.lower()) if w not in FUNCTION_WORDS) for text in texts]
    in_texts = Counter(word for counter in of_texts for word in counter)
    most = max(LEAST_TEXTS, MOST_TEXTS * len(texts))
    usable = [word for word, n in in_texts.items() if LEAST_TEXTS <= n <= most]
    vocabulary = sorted(sorted(usable, key=lambda word: (-in_texts[word], word))[:MOST_WORDS])
    place = {word: n for n, word in enumerate(vocabulary)}
    rows = [(t, place[w], n) for t, counter in enumerate(of_texts) for w, n in sorted(counter.items()) if w in place]
    return vocabulary, np.array(rows, np.int64).reshape(-1, 3)


def allocate(
    counts: np.ndarray, n_topics: int, shape: tuple[int, int], seed: int, rounds: int = ROUNDS
) -> tuple[np.ndarray, np.ndarray]:
    """Fit LDA by collapsed variational Bayes of order zero: CVB0, Asuncion et al. 2009 (arXiv:1205.2662).

    All rows are updated at once from the sums of the previous round, each without its own part; in float32 and in
    place, which takes half the time.

    Args:
        counts: (text, word, count) rows (m, 3), sorted by text.
        n_topics: Number of topics.
        shape: Numbers of texts and of words.
        seed: Of the random start.
        rounds: Number of updates.

    Returns:
        Expected word counts by text and topic, (texts, topics), and by word and topic, (words, topics).
    """
    text, word = counts[:, 0], counts[:, 1]
    weights = counts[:, 2:].astype(np.float32)
    by_word = np.argsort(word, kind="stable")
    sorted_word = word[by_word]
    part = np.random.default_rng(seed).dirichlet(np.ones(n_topics), len(counts)).astype(np.float32)
    expected, factor = np.empty_like(part), np.empty_like(part)

    def sums() -> tuple[np.ndarray, np.ndarray]:
        np.multiply(part, weights, out=expected)
        return _sums(text, expected, shape[0]), _sums(sorted_word, expected.take(by_word, 0, out=factor), shape[1])

    for _ in range(rounds):
        of_text, of_word = sums()
        sizes = of_word.sum(0) + np.float32(ETA * shape[1])
        np.subtract(of_text.take(text, 0, out=factor), part, out=factor)
        factor += ALPHA
        np.subtract(of_word.take(word, 0, out=expected), part, out=expected)
        expected += ETA
        factor *= expected
        np.subtract(sizes, part, out=part)
        np.divide(factor, part, out=part)
        part /= part.sum(1, keepdims=True)
    return sums()


def _sums(keys: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    """Return the (n, k) sums of (m, k) ``rows`` by sorted key in 0…n-1, 0 for a key without rows."""
    found = np.zeros((n, rows.shape[1]), rows.dtype)
    first = np.flatnonzero(np.diff(keys, prepend=-1))
    found[keys[first]] = np.add.reduceat(rows, first)
    return found


def names(text: str) -> set[str]:
    """Return the runs of capitalised words that do not begin a sentence: "Clara", "Lake Como".

    A rough count of named entities that needs no model: it misses names that begin a sentence, counts German nouns, and
    finds none in scripts without capitals.
    """
    return {found[0] for found in NAME.finditer(text) if not BEGINS.search(text[: found.start()])}
