"""Find for each word of a vocabulary the cosine from which on a picture has it as a tag."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairmill.ops.whole.ranking import blocks

VERSION = 1  # counts up when the same vectors give other values
# One also-ran in a hundred is higher than what a word gets as one. Of fewer than a hundred it is the highest.
ONE_IN = 100
# How much of a word's own level counts, the rest being the mean of all words' levels: a word's own is a noisy estimate,
# and higher for words that have many like them, which are right more often than hubs are.
OWN = 0.25


def tag_thresholds(pictures: np.ndarray, words: np.ndarray, strict: float) -> np.ndarray:
    """Return thresholds (w,) of cosines, rounded to 4 decimals; ``pictures`` (n, d), ``words`` (w, d), of length 1.

    ``pictures`` are a sample, 100 or more. A word's level is its cosine with pictures to which another word is nearer,
    at the 99th percentile: what it gets where it is wrong, mostly. A word that is near everything has a high one. All
    thresholds are the levels (a quarter the word's own, the rest the mean of all) raised alike, until the share
    ``strict`` of the runners-up, each picture's second-best word by its margin, fails. A runner-up stands for the
    best word of a picture that shows nothing of the vocabulary. Raises ValueError for fewer than two words.

    In three demo worlds (1,500 pictures each, 1,228 words), and with a random half of the words: first tags that are
    right, of pictures that show one of the words; tags that are right; pictures that show none of them and get no tag.

    | strict | first right | right among all | recall | half: first right | half: none |
    |--:|--:|--:|--:|--:|--:|
    | the nearest three | 0.899 | 0.33 | 0.98 | 0.946 | 0 |
    | 0.5 | 0.893 | 0.54 | 0.962 | 0.946 | 0.31 |
    | 0.7 | 0.881 | 0.69 | 0.933 | 0.942 | 0.51 |

    A word's own level makes no difference there (none of it: 0.892, 0.873; all: worse), its CLIP having learned these
    words alone; it is for words that are near everything. Tags are ranked by cosine: by how far they are above their
    threshold 0.1 to 0.4 % fewer first ones are right there, and in a fourth world 0.6 % more. Mean and deviation of
    all cosines of a word do harm: of 3,282 pictures of that world 0.911 are right by cosine, 0.873 less the mean, 0.761
    in deviations, since words that have many like them are also those that many pictures show.
    """
    if len(words) < 2:
        raise ValueError("a threshold needs words to tell apart: two or more")
    best = _best(pictures, words)
    level = _levels(pictures, words, best)
    level = OWN * level + (1 - OWN) * level.mean()
    runners_up = np.sort(_second_margins(pictures, words, level))
    return np.round(level + runners_up[int(strict * len(pictures))], 4)


def _cosines(pictures: np.ndarray, words: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (words, their cosines with all pictures as (w, n) float32), a block of words at a time."""
    for part in blocks(len(words), len(pictures)):
        yield part, words[part] @ pictures.T


def _best(pictures: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return the nearest word of each picture (n,), the earlier one of two."""
    highest, best = np.full(len(pictures), -np.inf, np.float32), np.zeros(len(pictures), np.int64)
    for part, cosines in _cosines(pictures, words):
        first = cosines.argmax(axis=0)
        value = np.take_along_axis(cosines, first[None], axis=0)[0]
        best = np.where(value > highest, part.start + first, best)
        highest = np.maximum(value, highest)
    return best


def _levels(pictures: np.ndarray, words: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return each word's high percentile over the pictures to which another is nearer; over all where none is."""
    wins = np.bincount(best, minlength=len(words))
    level = np.empty(len(words))
    for part, cosines in _cosines(pictures, words):
        for word, row in enumerate(cosines, part.start):
            also_ran = row[best != word] if 0 < wins[word] < len(row) else row
            rank = len(also_ran) // ONE_IN + 1
            level[word] = np.partition(also_ran, -rank)[-rank]
    return level


def _second_margins(pictures: np.ndarray, words: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return each picture's second-highest margin above the words' levels: (n,)."""
    highest = np.full((2, len(pictures)), -np.inf)
    for part, cosines in _cosines(pictures, words):
        margins = np.concatenate([highest, cosines - level[part, None]])
        highest = np.partition(margins, -2, axis=0)[-2:]
    return highest[0]
