"""Tag images zero-shot with the words of a vocabulary that are nearest in CLIP's embedding space."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

EmbedTexts = Callable[[list[str]], np.ndarray]


# Size in bytes of the cosines of one block of images with all words.
BLOCK_BYTES = 32 << 20
# The error of a float32 product is smaller than this; candidates within it are compared again after rounding.
SLACK = 1e-4


@dataclass(frozen=True)
class ZeroShotTags:
    """Tag images with the ``top_k`` nearest words of ``vocabulary``, each embedded in the sentence ``template``.

    The input is image vectors (n, d). The outputs are ``tags`` (best first) and ``tag_similarities`` (cosine, rounded
    to 4 decimals). With ``thresholds``, one per word, an image gets only the words whose cosine reaches their
    threshold, possibly none; without, it gets ``top_k`` words, however low their cosine. Ties go to the earlier word.
    Raises ValueError if a word is empty or repeated, the template does not have exactly one {}, or the number of
    thresholds differs from the number of words.
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
        """Return (tags, tag_similarities), one list per image; ``embed_texts`` is called once per process."""
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
        """Yield (indices of words, their cosines), best first, for each row of ``cosines`` (n, words) float32."""
        bars = np.asarray(self.thresholds or (0.0,) * len(self.vocabulary))
        margins = cosines - bars.astype(np.float32)
        if self.thresholds:
            least = np.zeros((len(margins), 1), np.float32)
        else:
            rank = min(self.top_k, margins.shape[1])
            least = np.partition(margins, -rank, axis=1)[:, -rank, None]
        rows, places = np.nonzero(margins >= least - SLACK)
        # Round before ranking, so that rounding errors of the product cannot swap two equal words.
        values = np.round(cosines[rows, places].astype(np.float64), 4)
        above = np.round(values - bars[places], 4)
        order = np.lexsort((places, -values, rows))
        order = order[above[order] >= 0] if self.thresholds else order
        ends = np.searchsorted(rows[order], np.arange(len(margins) + 1))
        for first, last in pairwise(ends):
            chosen = order[first : min(last, first + self.top_k)]
            yield places[chosen].tolist(), values[chosen].tolist()

    def _words(self, embed_texts: EmbedTexts) -> np.ndarray:
        """Embed the vocabulary, (words, d); cached per ``embed_texts``."""
        if embed_texts not in self._vectors:
            self._vectors[embed_texts] = embed_texts([self.template.replace("{}", word) for word in self.vocabulary])
        return self._vectors[embed_texts]
