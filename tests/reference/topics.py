"""Latent Dirichlet allocation by loops: the slow twin of `pairmill.ops.text.topics.allocate`."""

import numpy as np

from pairmill.ops.text.topics import ALPHA, ETA


def allocate(
    counts: list[tuple[int, int, int]], n_topics: int, shape: tuple[int, int], seed: int, rounds: int
) -> tuple[list[list[float]], list[list[float]]]:
    """Return expected word counts by (text, topic) and by (word, topic), from the same random start."""
    texts, words = shape
    part = [list(map(float, row)) for row in np.random.default_rng(seed).dirichlet(np.ones(n_topics), len(counts))]
    for at in range(rounds + 1):
        of_text = [[0.0] * n_topics for _ in range(texts)]
        of_word = [[0.0] * n_topics for _ in range(words)]
        size = [0.0] * n_topics
        for (text, word, n), row in zip(counts, part, strict=True):
            for topic, share in enumerate(row):
                of_text[text][topic] += n * share
                of_word[word][topic] += n * share
                size[topic] += n * share
        if at == rounds:
            return of_text, of_word
        updated = []
        for (text, word, _), row in zip(counts, part, strict=True):
            weight = [
                (of_word[word][k] - row[k] + ETA)
                / (size[k] - row[k] + ETA * words)
                * (of_text[text][k] - row[k] + ALPHA)
                for k in range(n_topics)
            ]
            updated.append([each / sum(weight) for each in weight])
        part = updated
    raise AssertionError("unreachable")
