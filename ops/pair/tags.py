"""Tag pictures zero-shot with the words of a vocabulary that are nearest in CLIP's space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

EmbedTexts = Callable[[list[str]], np.ndarray]


@dataclass(frozen=True)
class ZeroShotTags:
    """Tag pictures with the ``top_k`` nearest words of ``vocabulary``, each put into ``template`` and embedded.

    Read image vectors (n, d); give ``tags`` (best first) and ``tag_similarities`` (cosine, rounded to 4 decimals).
    Every picture gets ``top_k`` tags, fitting or not: filter by similarity where that matters. Ties go to the earlier
    word. Raises ValueError for an empty or repeated word, or a template without one {}.
    """

    vocabulary: tuple[str, ...]
    template: str = "a photo of a {}"
    top_k: int = 5
    version: int = 1
    _vectors: dict[EmbedTexts, np.ndarray] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.vocabulary or not all(word.strip() for word in self.vocabulary):
            raise ValueError("tags: the vocabulary is empty or holds an empty word; write one word or phrase a line")
        if len(set(self.vocabulary)) < len(self.vocabulary):
            twice = sorted({word for word in self.vocabulary if self.vocabulary.count(word) > 1})
            raise ValueError(f"tags: {', '.join(twice[:5])} more than once in the vocabulary; keep one of each")
        if self.template.count("{}") != 1:
            raise ValueError(f"tags: template '{self.template}' needs one {{}} where the word goes")

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items() if name != "_vectors"} | {"_vectors": {}}

    def __call__(self, image_vectors: np.ndarray, embed_texts: EmbedTexts) -> tuple[list[list[str]], list[list[float]]]:
        """Return (tags, tag_similarities), one list a picture; ``embed_texts`` is ``Clip.embed_texts``, called once."""
        words = self._words(embed_texts)
        similarities = np.asarray(image_vectors, dtype=np.float32) @ words.T
        # Rounded before they are ranked, so that rounding in the product cannot swap two equal words.
        similarities = np.round(similarities.astype(np.float64), 4)
        order = np.argsort(-similarities, axis=1, kind="stable")[:, : self.top_k]
        values = np.take_along_axis(similarities, order, axis=1)
        return [[self.vocabulary[word] for word in row] for row in order], values.tolist()

    def _words(self, embed_texts: EmbedTexts) -> np.ndarray:
        if embed_texts not in self._vectors:
            self._vectors[embed_texts] = embed_texts([self.template.replace("{}", word) for word in self.vocabulary])
        return self._vectors[embed_texts]
