"""Embed images and sentences as unit vectors of one space with a CLIP model of open_clip."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from pairmill.ops.models.device.batch_size import known_batch_size, measured_batch_size, noise

if TYPE_CHECKING:
    from pairmill.ops.models.clip.clip_loaded import LoadedClip
    from pairmill.ops.models.device.row_batches import RowBatches


Side = Literal["text", "image"]


@dataclass(frozen=True)
class Clip:
    """Embed images and sentences with ``spec`` ('open_clip:MODEL/PRETRAINED' or 'open_clip:local-dir:FOLDER').

    Weights load on first use, once per process, and are not pickled. Vectors are float32 of length 1, so cosine
    similarity is the dot product. ``spec`` and ``precision`` ('fp32', 'bf16') are part of a scorer's identity.
    ``batch_size`` is not: it changes values by rounding only (below 1e-5 in fp32). Every use raises ModelError if the
    model is missing or does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    @property
    def image_size(self) -> int:
        """Side in pixels of the image tower's square input; decode images to at least this. Loads the model."""
        return self.loaded.image_size

    @property
    def loaded(self) -> "LoadedClip":
        """The model in this process, loaded on first use."""
        from pairmill.ops.models.clip.clip_loaded import load  # imports torch, 3 CPU s, which a flow need not pay

        return load(self.spec, self.precision)

    def embed_images(self, pixels: list[np.ndarray]) -> np.ndarray:
        """Embed images (h, w, 3) uint8 RGB of any size as (n, d) float32.

        Decode images to a shorter side of ``image_size``: the model sees no more. Raises torch.cuda.OutOfMemoryError,
        as `embed_texts` does, if a single image does not fit the device.
        """
        return self.fetch(self.prepare_images(pixels).launched(self.loaded.embed_images).complete())

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        """Embed sentences as (n, d) float32, in input order; truncate a sentence to the model's context."""
        return self.fetch(self.prepare_texts(texts).launched(self.loaded.embed_tokens).complete())

    def load(self) -> None:
        """Load the weights now, once per process."""
        _ = self.loaded

    def fitted_batch_size(self) -> int:
        """Return the batch size at which images are embedded fastest on this GPU; on a CPU, ``batch_size``.

        The first call on a GPU runs the model: no other thread may use the model meanwhile.
        """

        def run(rows: int) -> None:
            side = self.loaded.image_size
            for _, fitted in self.loaded.prepare_pictures([noise(side, side)] * rows, rows).batches:
                self.loaded.embed_images(fitted).cpu()  # no halving: a batch that does not fit is too large

        return measured_batch_size(self.spec, f"{self.precision} pictures", self.batch_size, run)

    def fit_texts(self) -> None:
        """Find the batch size at which sentences of 20 words are embedded fastest on this GPU; on a CPU, do nothing.

        The first call on a GPU runs the model: no other thread may use the model meanwhile.
        """

        def run(rows: int) -> None:
            from pairmill.ops.models.clip.clip_loaded import USUAL_SENTENCE  # imports torch, as in `loaded`

            self.loaded.embed_tokens(self.loaded.tokenizer([USUAL_SENTENCE] * rows)).cpu()

        measured_batch_size(self.spec, f"{self.precision} sentences", self.batch_size, run)

    def prepare_images(self, pixels: list[np.ndarray]) -> "RowBatches":
        """Resize and crop images (h, w, 3) uint8 into CPU batches (n, 3, s, s) uint8."""
        return self.loaded.prepare_pictures(pixels, self.fitted_batch_size())

    def prepare_texts(self, texts: list[str]) -> "RowBatches":
        """Tokenize sentences on the CPU into batches of similar length."""
        rows = known_batch_size(self.spec, f"{self.precision} sentences", self.batch_size)
        return self.loaded.prepare_sentences(texts, rows)

    def fetch(self, running: "RowBatches") -> np.ndarray:
        """Wait for the device; return vectors (n, d) float32, NaN for rows that do not fit the device on their own."""
        return running.fetched(np.float32, self.loaded.dimension)


@dataclass(frozen=True)
class ClipTower(Clip):
    """A CLIP with one tower: ``side`` "text" only embeds sentences, "image" only pictures; vectors are the same.

    A search by words needs no image tower, which takes 0.35 GB of a ViT-B-32.
    """

    side: Side = "text"

    @property
    def loaded(self) -> "LoadedClip":
        """This tower in this process, loaded on first use."""
        from pairmill.ops.models.clip.clip_loaded import load_tower  # imports torch, as in Clip

        return load_tower(self.spec, self.precision, self.side)
