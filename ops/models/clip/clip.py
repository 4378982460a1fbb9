"""Embed pictures and sentences as unit vectors of one space with a CLIP of open_clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size

if TYPE_CHECKING:
    from pairmill.ops.models.clip.clip_loaded import LoadedClip
    from pairmill.ops.models.device.row_batches import RowBatches


@dataclass(frozen=True)
class Clip:
    """Embed pictures and sentences with ``spec`` ('open_clip:MODEL/PRETRAINED' or 'open_clip:local-dir:FOLDER').

    Loaded on first use, once a process; pickled without weights. Vectors are float32, of length 1: cosine is the dot
    product. ``spec`` and ``precision`` ('fp32', 'bf16') are identity, ``batch_size`` is placement: it moves values by
    rounding only (below 1e-5 in fp32). Using it raises ModelError when the model is missing or does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    @property
    def dimension(self) -> int:
        """Length of a vector. Loads the model."""
        return self._loaded.dimension

    @property
    def image_size(self) -> int:
        """Side in pixels of the image tower's input; decode to at least this. Loads the model."""
        return self._loaded.image_size

    @property
    def _loaded(self) -> LoadedClip:
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from pairmill.ops.models.clip.clip_loaded import load

        return load(self.spec, self.precision)

    def embed_images(self, pixels: list[np.ndarray]) -> np.ndarray:
        """Embed pictures (h, w, 3) uint8 RGB of any size, best of shorter side ``image_size``, as (n, d) float32.

        Raises torch.cuda.OutOfMemoryError when one has no room on the device even alone, as does `embed_texts`.
        """
        return self.fetch(self.infer_images(self.prepare_images(pixels)).complete())

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        """Embed sentences as (n, d) float32, in the order given; one longer than the model's context loses its end."""
        return self.fetch(self.infer_texts(self.prepare_texts(texts)).complete())

    def load(self) -> None:
        """Load the weights now."""
        _ = self._loaded

    def fitted_batch_size(self) -> int:
        """Return the batch size at which pictures are embedded fastest on this GPU; on a CPU the one that is set.

        The first call on a GPU embeds: no other thread may use the model then.
        """

        def run(rows: int) -> None:
            side = self._loaded.image_size
            pictures = [np.zeros((side, side, 3), np.uint8)] * rows
            for _, fitted in self._loaded.prepare_pictures(pictures, rows).batches:
                self._loaded.embed_images(fitted).cpu()  # not in halves: a batch without room is too large

        return measured_batch_size(self.spec, f"{self.precision} pictures", self.batch_size, run)

    def prepare_images(self, pixels: list[np.ndarray]) -> RowBatches:
        """Fit pictures into batches on the CPU, (n, 3, s, s) uint8."""
        return self._loaded.prepare_pictures(pixels, self.fitted_batch_size())

    def infer_images(self, ready: RowBatches) -> RowBatches:
        """Launch prepared pictures, in halves where memory runs out; the device is not waited for."""
        return ready.launched(self._loaded.embed_images)

    def prepare_texts(self, texts: list[str]) -> RowBatches:
        """Tokenize sentences on the CPU, in batches of like length."""
        return self._loaded.prepare_sentences(texts, self.batch_size)

    def infer_texts(self, ready: RowBatches) -> RowBatches:
        """Launch prepared sentences, in halves where memory runs out; the device is not waited for."""
        return ready.launched(self._loaded.embed_tokens)

    def fetch(self, running: RowBatches) -> np.ndarray:
        """Wait for the device; return vectors (n, d) float32, NaN for a row that had no room there even alone."""
        return running.fetched(np.float32, self._loaded.dimension)
