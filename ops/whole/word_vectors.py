"""Measure how CLIP sees the words of a vocabulary: how well images ground them, and their thresholds as tags."""

from collections.abc import Iterator, Sequence

import numpy as np

from pairmill.ops.whole.ranking import blocks

GROUNDING_VERSION = 1  # increase when the same vectors give other values, rare ones aside
# Nearest images of a word.
TOP = 4
# A phrase must exceed the grounding of the shorter phrase at its end by this; else its first word names nothing that
# CLIP sees ("a famous bell"). In the demo world 46 % of the phrases with "small", "famous" and the like exceed it, and
# 79 % of the names that images have ("angry face", 99 of them). A margin of 0 passes 70 % and 91 %, 0.02 36 % and 74 %.
MORE = 0.01
THRESHOLDS_VERSION = 1  # increase when the same vectors give other values, rare ones aside
# A word's level is exceeded by one in this many cosines with images for which another word is nearer. Of fewer than a
# hundred cosines it is the highest.
ONE_IN = 100
# Weight of a word's own level; the rest is the mean of all levels. A word's own level is a noisy estimate. It is also
# higher for words with many similar words, and these are right more often than words near everything.
OWN = 0.25


def grounding(pictures: np.ndarray, words: np.ndarray) -> np.ndarray:
    """Return each word's mean cosine with its TOP nearest images, minus its mean with all images: (w,), 4 decimals.

    ``pictures`` (n, d) and ``words`` (w, d) are float32 vectors of length 1; with fewer than TOP images, all are
    nearest. A word for something visible is near the images that show it and far from others; a word such as "reason"
    is equally far from all.

    The table gives the probability (AUC) that a word that names an image of the demo world (207 words) ranks above a
    word that names nothing in the images (196, such as "year" and "reason"). The words are nouns and noun phrases of
    its sentences; there are 3,310 images.

    | measure | top 1 | top 4 | top 16 |
    |---|--:|--:|--:|
    | mean cosine of the top | 1.000 | 0.9999 | 0.9989 |
    | less the mean of all (**ours**) | 1.000 | 0.9998 | 0.9986 |
    | less the 99th percentile of all | 0.973 | 0.977 | 0.983 |
    | less the mean, in deviations | 0.876 | 0.874 | 0.811 |

    Some words ("image", "photo") are near every image in any CLIP. Dividing by the standard deviation does harm: a word
    with many similar words ("face", among faces) has a wide spread because it is grounded.
    """
    top = min(TOP, len(pictures))
    found = np.empty(len(words))
    for part in blocks(len(words), len(pictures)):
        cosines = words[part] @ pictures.T
        nearest = np.partition(cosines, -top, axis=1)[:, -top:]
        found[part] = nearest.mean(axis=1, dtype=np.float64) - cosines.mean(axis=1, dtype=np.float64)
    return np.round(found, 4)


def best_grounded(words: Sequence[str], values: np.ndarray, first: int, most: int) -> list[int]:
    """Return the indices of the ``most`` best grounded words from index ``first`` on, best first; ties by index.

    ``values`` is the result of `grounding`. A phrase that exceeds the shorter phrase at its end by less than MORE is
    skipped, wherever the shorter phrase is in ``words``.
    """
    value = dict(zip(words, values.tolist(), strict=True))
    shorter = (word.partition(" ")[2] for word in words)
    stands_out = [value[word] >= value.get(end, -2.0) + MORE for word, end in zip(words, shorter, strict=True)]
    places = (place for place in range(first, len(words)) if stands_out[place])
    return sorted(places, key=lambda place: (-values[place], place))[:most]


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
    CLIP was trained on these words alone; it is meant for words that are near everything. Tags are ranked by cosine:
    normalising each word's cosines does harm. Of 3,282 images of a fourth world 0.911 are right by cosine, 0.873 after
    subtracting the mean, 0.761 in standard deviations. Raises ValueError if there are fewer than two words.
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
    """Return each word's 99th percentile over the images nearer to another word, or over all without any: (w,)."""
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
