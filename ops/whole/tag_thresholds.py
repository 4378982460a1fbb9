"""Compute for each word of a vocabulary the cosine at which an image gets the word as a tag."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from pairmill.ops.whole.ranking import blocks

VERSION = 1  # increase when the same vectors give other values
# A word's level is exceeded by one in this many cosines with images for which another word is nearer. Of fewer than a
# hundred cosines it is the highest.
ONE_IN = 100
# Weight of a word's own level; the rest is the mean of all levels. A word's own level is a noisy estimate. It is also
# higher for words with many similar words, and these are right more often than words near everything.
OWN = 0.25


def tag_thresholds(pictures: np.ndarray, words: np.ndarray, strict: float) -> np.ndarray:
    """Compute the threshold (w,) of each word's cosine, rounded to 4 decimals.

    ``pictures`` (n, d) and ``words`` (w, d) have rows of length 1; ``pictures`` are a sample of at least 100.

    A word's level is the 99th percentile of its cosines with images for which another word is nearer, that is, mostly
    where the word is wrong. A word that is near everything has a high level. A threshold is the level (a quarter the
    word's own, the rest the mean of all levels) plus an offset common to all words. The offset is chosen so that the
    share ``strict`` of the runners-up fails; a runner-up is an image's second-best word by its margin above the level,
    and represents the best word of an image that shows nothing of the vocabulary.

    The table covers three demo worlds (1,500 images each, 1,228 words), and the same with a random half of the words.
    It gives the share of right first tags among images that show one of the words, the share of right tags, recall, and
    for the half vocabulary also the share of images without any of the words that get no tag:

    | strict | first right | right among all | recall | half: first right | half: none |
    |--:|--:|--:|--:|--:|--:|
    | the nearest three | 0.899 | 0.33 | 0.98 | 0.946 | 0 |
    | 0.5 | 0.893 | 0.54 | 0.962 | 0.946 | 0.31 |
    | 0.7 | 0.881 | 0.69 | 0.933 | 0.942 | 0.51 |

    A word's own level makes no difference there (with none of it: 0.892, 0.873; with all of it: worse), because that
    CLIP was trained on these words alone; it is meant for words that are near everything. Tags are ranked by cosine.
    Ranked by their distance above the threshold, 0.1 to 0.4 % fewer first tags are right there, and 0.6 % more in a
    fourth world. Normalising each word's cosines does harm: of 3,282 images of that world 0.911 are right by cosine,
    0.873 after subtracting the mean, 0.761 in standard deviations, since words with many similar words are also those
    that many images show.

    Raises:
        ValueError: There are fewer than two words.
    """
    if len(words) < 2:
        raise ValueError("a threshold needs words to tell apart: two or more")
    best = _best(pictures, words)
    level = _levels(pictures, words, best)
    level = OWN * level + (1 - OWN) * level.mean()
    runners_up = np.sort(_second_margins(pictures, words, level))
    return np.round(level + runners_up[int(strict * len(pictures))], 4)


def _cosines(pictures: np.ndarray, words: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield (slice of words, their cosines with all images as (w, n) float32), one block of words at a time."""
    for part in blocks(len(words), len(pictures)):
        yield part, words[part] @ pictures.T


def _best(pictures: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return the index of each image's nearest word: (n,); ties go to the earlier word."""
    highest, best = np.full(len(pictures), -np.inf, np.float32), np.zeros(len(pictures), np.int64)
    for part, cosines in _cosines(pictures, words):
        first = cosines.argmax(axis=0)
        value = np.take_along_axis(cosines, first[None], axis=0)[0]
        best = np.where(value > highest, part.start + first, best)
        highest = np.maximum(value, highest)
    return best


def _levels(pictures: np.ndarray, words: np.ndarray, best: np.ndarray) -> np.ndarray:
    """Return each word's 99th percentile over the images for which another word is nearer: (w,).

    A word that is nearest for no image, or for all, takes the percentile over all images.
    """
    wins = np.bincount(best, minlength=len(words))
    level = np.empty(len(words))
    for part, cosines in _cosines(pictures, words):
        for word, row in enumerate(cosines, part.start):
            also_ran = row[best != word] if 0 < wins[word] < len(row) else row
            rank = len(also_ran) // ONE_IN + 1
            level[word] = np.partition(also_ran, -rank)[-rank]
    return level


def _second_margins(pictures: np.ndarray, words: np.ndarray, level: np.ndarray) -> np.ndarray:
    """Return each image's second-highest margin above the words' levels: (n,)."""
    highest = np.full((2, len(pictures)), -np.inf)
    for part, cosines in _cosines(pictures, words):
        margins = np.concatenate([highest, cosines - level[part, None]])
        highest = np.partition(margins, -2, axis=0)[-2:]
    return highest[0]
