"""Score how well a text matches an image by a model that reads both together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.device.batched_score import BatchedScore

if TYPE_CHECKING:
    import torch

    from pairmill.ops.models.device.row_batches import RowBatches
    from pairmill.ops.models.matching.image_text_match_loaded import Matcher


@dataclass(frozen=True)
class ImageTextMatch(BatchedScore):
    """Read ``pixels`` (list of uint8 (h, w, 3)) and ``text``; add ``itm_score`` float64 (n,), 0 to 1, and ``fault``.

    ``itm_score`` is the probability that the model gives to "they belong together". A threshold belongs to one model.

    ``model`` is one of three kinds:

    - 'hf:NAME_OR_FOLDER' of a BLIP or BridgeTower for image–text retrieval, with its processor: its matching head;
    - 'open_clip:…' of a SigLIP: the sigmoid of its logit;
    - 'hf:NAME_OR_FOLDER' of another vision-language model: it is asked whether the image shows the text, and the score
      is the share of "yes" in "yes or no".

    BLIP and SigLIP encode an image once a batch if several rows hold the same array, the others once a row.
    ``batch_size`` is in pairs.
    """

    name: ClassVar[str] = "itm"
    reads: ClassVar[str] = "text"
    adds: ClassVar[str] = "itm_score"

    def load(self) -> None:
        """Load the weights now."""
        self._loaded()

    def inputs(self, batch: Batch) -> "RowBatches":
        """Resize the images and tokenize the texts of ``batch`` into the model's inputs, on the CPU."""
        return self._loaded().prepare(batch["pixels"], batch["text"], self.batch_size)

    def run(self, rows: Any) -> "torch.Tensor":
        """Launch the model on prepared pairs; return their probabilities (n,) on the device."""
        return self._loaded().probabilities(rows)

    def values(self, launched: "RowBatches") -> np.ndarray:
        """Wait for the device; return the probabilities of all rows, float64 (n,), 0 to 1."""
        return launched.fetched(np.float64)

    def _loaded(self) -> "Matcher":
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.matching.image_text_match_loaded import load  # imports torch, 3 CPU s

        return load(self.model, self.precision)
