"""Tag images zero-shot by CLIP with the nearest words of a vocabulary; find the images that show one of some names."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from pairmill.ops.whole.word_vectors import tag_thresholds

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
        for first, last in pairwise(np.searchsorted(rows[order], np.arange(len(margins) + 1))):
            chosen = order[first : min(last, first + self.top_k)]
            yield places[chosen].tolist(), values[chosen].tolist()

    def _words(self, embed_texts: EmbedTexts) -> np.ndarray:
        """Embed the vocabulary, (words, d); cached per ``embed_texts``."""
        if embed_texts not in self._vectors:
            self._vectors[embed_texts] = embed_texts([self.template.replace("{}", word) for word in self.vocabulary])
        return self._vectors[embed_texts]


TEMPLATE = "a photo of a {}"
STRICT = 0.5  # share of runners-up that the threshold of a word refuses
FEWEST = 100  # pictures from which thresholds are computed; below, the nearest word counts, however low its cosine
MOST_OTHERS = 2_000  # background words; more tell little apart, and their cosines with each other take n^2 numbers
# Cosines between background words above this quantile are those of words for the same thing ("dog", "poodle").
ALIKE = 0.99
SCALE = 100.0  # of cosines in CLIP's softmax: the largest that CLIP is trained with (Radford et al. 2021, section 2.5)


class NamedPictures:
    """Find for each picture which of ``names`` it shows, or none, by CLIP's vectors.

    A picture shows the name whose sentence is nearest to it if the cosine reaches the name's threshold
    (`ops.whole.word_vectors.tag_thresholds`, over names and background) and no background word is nearer. Background
    words that mean nearly the same as the name are no rivals of it: their cosine with the name is above the quantile
    ALIKE of the cosines between background words.

    Asked for 8 of the kinds of a drawn demo world, which 46 of its 3,250 pictures show, and for 2 names that none
    shows, the names alone counted 2,536 pictures and 294. With the world's tag vocabulary as background it is 65 and 2,
    with ImageNet's names 145 and 3. Asked for all 748 kinds, 535 counts were exact without a background, 533 with it.
    """

    def __init__(self, names: Sequence[str], background: Sequence[str], embed_texts: EmbedTexts, sample: np.ndarray):
        """Embed the words, and set thresholds by ``sample``: (n, d) float32 vectors of pictures, of length 1."""
        given = {name.casefold() for name in names}
        others = [word for word in background if word.casefold() not in given]
        others = others[:: -(-len(others) // MOST_OTHERS) or 1]
        words = embed_texts([TEMPLATE.replace("{}", word) for word in (*names, *others)])
        self._names, self._others = words[: len(names)], words[len(names) :]
        pairs = (self._others @ self._others.T)[~np.eye(len(others), dtype=bool)]
        alike = np.quantile(pairs, ALIKE) if len(pairs) else 1.0
        self._is_rival = self._names @ self._others.T <= alike
        self._bars = np.full(len(names), -1.0)
        if len(sample) >= FEWEST and len(words) > 1:
            self._bars = tag_thresholds(sample, words, STRICT)[: len(names)]

    def __call__(self, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return each picture's name, by index, -1 for none, and the probability that it shows it: (n,), (n,).

        ``vectors`` (n, d) are float32, of length 1. The probability is CLIP's softmax over the names and the name's
        rivals, 0 to 1.
        """
        cosines, others = vectors @ self._names.T, vectors @ self._others.T
        reaching = np.where(cosines >= self._bars, cosines, -np.inf)
        shown, probability = reaching.argmax(axis=1), np.zeros(len(vectors))
        shown[np.isneginf(reaching.max(axis=1, initial=-np.inf))] = -1
        for name in np.unique(shown[shown >= 0]):
            rows = np.flatnonzero(shown == name)
            own = cosines[rows, name]
            rivals = others[np.ix_(rows, np.flatnonzero(self._is_rival[name]))]
            every = np.exp(SCALE * (np.hstack([cosines[rows], rivals]) - own[:, None]).astype(np.float64))
            probability[rows] = 1 / every.sum(axis=1)
            shown[rows[rivals.max(axis=1, initial=-np.inf) > own]] = -1
        return shown, probability
