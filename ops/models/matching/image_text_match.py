"""Score how well a text matches an image by a model that reads both together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.model_digest import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.matching.image_text_match_loaded import Matcher

PRECISIONS = ("fp32", "bf16")


@dataclass(frozen=True)
class ImageTextMatch:
    """Read ``pixels`` (list of uint8 (h, w, 3)) and ``text``; add ``itm_score`` float64 (n,), 0 to 1, and ``fault``.

    ``itm_score`` is the probability that the model gives to "they belong together". A threshold belongs to one model.
    ``fault`` is None, or the Fault of a pair that does not fit the device on its own; its score is NaN.

    ``model`` is one of three kinds:

    - 'hf:NAME_OR_FOLDER' of a BLIP or BridgeTower for image–text retrieval, with its processor: its matching head;
    - 'open_clip:…' of a SigLIP: the sigmoid of its logit (`pairwise_clip.py`);
    - 'hf:NAME_OR_FOLDER' of another vision-language model: it is asked whether the image shows the text, and the score
      is the share of "yes" in "yes or no" (`yes_or_no.py`).

    It loads on first use, once per process. BLIP and SigLIP encode an image once a batch if several rows hold the same
    array, the others once a row. ``batch_size``, in pairs, is placement and no part of the score's identity.

    Raises:
        ModelError: ``precision`` is unknown; on use, the model is missing or of another kind.
    """

    model: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ModelError(f"itm: precision '{self.precision}'; write one of {', '.join(PRECISIONS)}")

    def __call__(self, batch: Batch) -> Batch:
        """Return the batch with the columns ``itm_score`` and ``fault`` added."""
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def load(self) -> None:
        """Load the weights now."""
        self._loaded()

    def prepare(self, batch: Batch) -> Any:
        """Resize the images and tokenize the texts on the CPU; return None for an empty batch."""
        return self._loaded().prepare(batch["pixels"], batch["text"], self.batch_size) if batch["text"] else None

    def infer(self, ready: Any) -> Any:
        """Launch the prepared batches without waiting for the device."""
        return None if ready is None else ready.launched(self._loaded().probabilities)

    def fetch(self, running: Any) -> Batch:
        """Wait for the device; return the columns ``itm_score`` and ``fault``."""
        if running is None:
            return {"itm_score": np.empty(0), "fault": []}
        return {"itm_score": running.fetched(np.float64), "fault": running.faults()}

    def _loaded(self) -> Matcher:
        """Return the model in this process, loaded on first use."""
        # Imported here: torch takes 3 CPU seconds, and the flow process only names models; workers run them.
        from pairmill.ops.models.matching.image_text_match_loaded import load

        return load(self.model, self.precision)
