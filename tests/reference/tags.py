"""Tags, thresholds and grounding word by word and picture by picture, as they are defined."""

from __future__ import annotations

import numpy as np


def tags(cosines: np.ndarray, thresholds: list[float] | None, top_k: int) -> list[list[int]]:
    found = []
    for row in cosines:
        rounded = [round(float(value), 4) for value in row]
        margins = [round(value - (thresholds[word] if thresholds else 0.0), 4) for word, value in enumerate(rounded)]
        words = [word for word, margin in enumerate(margins) if thresholds is None or margin >= 0]
        found.append(sorted(words, key=lambda word: (-rounded[word], word))[:top_k])
    return found


def grounding(cosines: np.ndarray, top: int) -> list[float]:
    """``cosines`` (pictures, words)."""
    found = []
    for column in cosines.T.tolist():
        nearest = sorted(column, reverse=True)[:top]
        found.append(sum(nearest) / len(nearest) - sum(column) / len(column))
    return found


def thresholds(cosines: np.ndarray, strict: float, own: float, one_in: int) -> list[float]:
    """``cosines`` (pictures, words)."""
    levels = []
    for word, column in enumerate(cosines.T):
        others = [float(value) for picture, value in enumerate(column) if int(cosines[picture].argmax()) != word]
        others = others or [float(value) for value in column]
        levels.append(sorted(others, reverse=True)[len(others) // one_in])
    mean = sum(levels) / len(levels)
    levels = [own * level + (1 - own) * mean for level in levels]
    runners_up = sorted(sorted(row - np.array(levels))[-2] for row in cosines)
    return [level + runners_up[int(strict * len(cosines))] for level in levels]
