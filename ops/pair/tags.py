"""Tag pictures zero-shot with the words of a vocabulary that are nearest in CLIP's space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

EmbedTexts = Callable[[list[str]], np.ndarray]


# Cosines of a block of pictures with all words, in bytes.
BLOCK_BYTES = 32 << 20
# A float32 product is off by less; rounded, it is compared again.
SLACK = 1e-4


@dataclass(frozen=True)
class ZeroShotTags:
    """Tag pictures with the ``top_k`` nearest words of ``vocabulary``, each put into ``template`` and embedded.

    Read image vectors (n, d); give ``tags`` (best first) and ``tag_similarities`` (cosine, rounded to 4 decimals).
    With ``thresholds``, one a word, a picture has only words whose cosine reaches theirs: maybe none. Without, it has
    ``top_k``, fitting or not. Ties go to the earlier word. Raises ValueError for
    an empty or repeated word, a template without one {}, or not a threshold a word.
    """

    vocabulary: tuple[str, ...]
    template: str = "a photo of a {}"
    top_k: int = 5
    thresholds: tuple[float, ...] = ()
    version: int = 1
    _vectors: dict[EmbedTexts, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.vocabulary or not all(word.strip() for word in self.vocabulary):
            raise ValueError("tags: the vocabulary is empty or holds an empty word; write one word or phrase a line")
        if len(set(self.vocabulary)) < len(self.vocabulary):
            twice = sorted(word for word, n in Counter(self.vocabulary).items() if n > 1)
            raise ValueError(f"tags: {', '.join(twice[:5])} more than once in the vocabulary; keep one of each")
        if self.template.count("{}") != 1:
            raise ValueError(f"tags: template '{self.template}' needs one {{}} where the word goes")
        if self.thresholds and len(self.thresholds) != len(self.vocabulary):
            raise ValueError(f"tags: {len(self.thresholds)} thresholds for {len(self.vocabulary)} words")

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "_vectors"} | {"_vectors": {}}

    def __call__(self, image_vectors: np.ndarray, embed_texts: EmbedTexts) -> tuple[list[list[str]], list[list[float]]]:
        """Return (tags, tag_similarities), one list a picture; ``embed_texts`` is ``Clip.embed_texts``, called once."""
        words = self._words(embed_texts)
        vectors = np.asarray(image_vectors, dtype=np.float32)
        tags: list[list[str]] = []
        similarities: list[list[float]] = []
        step = max(1, BLOCK_BYTES // (4 * len(words)))
        for start in range(0, len(vectors), step):
            for places, cosines in self._of_block(vectors[start : start + step] @ words.T):
                tags.append([self.vocabulary[place] for place in places])
                similarities.append(cosines)
        return tags, similarities

    def _of_block(self, cosines: np.ndarray) -> Iterator[tuple[list[int], list[float]]]:
        """Yield (places of words, their cosines) of each row of ``cosines`` (n, words) float32, best first.

        Only what may be chosen is rounded and sorted: of 8,000 words that takes a fifth of sorting all.
        """
        bars = np.asarray(self.thresholds or (0.0,) * len(self.vocabulary))
        margins = cosines - bars.astype(np.float32)
        if self.thresholds:
            least = np.zeros((len(margins), 1), np.float32)
        else:
            rank = min(self.top_k, margins.shape[1])
            least = np.partition(margins, -rank, axis=1)[:, -rank, None]
        rows, places = np.nonzero(margins >= least - SLACK)
        # Rounded before they are ranked, so that rounding in the product cannot swap two equal words.
        values = np.round(cosines[rows, places].astype(np.float64), 4)
        above = np.round(values - bars[places], 4)
        order = np.lexsort((places, -values, rows))
        order = order[above[order] >= 0] if self.thresholds else order
        ends = np.searchsorted(rows[order], np.arange(len(margins) + 1))
        for first, last in pairwise(ends):
            chosen = order[first : min(last, first + self.top_k)]
            yield places[chosen].tolist(), values[chosen].tolist()

    def _words(self, embed_texts: EmbedTexts) -> np.ndarray:
        if embed_texts not in self._vectors:
            self._vectors[embed_texts] = embed_texts([self.template.replace("{}", word) for word in self.vocabulary])
        return self._vectors[embed_texts]
