"""Score pairs by a CLIP that was trained with a pairwise sigmoid, as SigLIP is (Zhai et al. 2023, arXiv 2303.15343).

Such a model learns for each picture and text on its own whether they belong together: the probability is the sigmoid of
the scaled cosine plus a bias. A CLIP that was trained with a softmax ranks texts, and has no bias.
"""

from __future__ import annotations

import numpy as np
import torch

from pairmill.ops.models.clip.clip_loaded import LoadedClip
from pairmill.ops.models.device.device import text_batches
from pairmill.ops.models.device.row_batches import RowBatches
from pairmill.ops.models.model_digest import ModelError

EXAMPLE = "open_clip:ViT-B-16-SigLIP/webli"
# One pair: the image fitted to the model's side (3, s, s) uint8, and the text's token ids (context,).
_Pair = tuple[torch.Tensor, torch.Tensor]


class PairwiseClip:
    """A CLIP of open_clip with a bias of its logits, in this process."""

    def __init__(self, clip: LoadedClip, spec: str) -> None:
        self.clip = clip
        if getattr(clip.model, "logit_bias", None) is None:
            raise ModelError(
                f"model '{spec}' was not trained on pairs (it has no logit_bias), so its cosines are no probabilities; "
                f"name one such as {EXAMPLE}, or compare by `similarity`"
            )

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Fit each distinct image, tokenize the texts, and group pairs of texts of similar length into batches."""
        distinct = {id(picture): picture for picture in pictures}
        fitted = {key: self.clip.fit(picture) for key, picture in distinct.items()}
        tokens = self.clip.tokenizer(texts)
        rows = [(fitted[id(picture)], ids) for picture, ids in zip(pictures, tokens, strict=True)]
        batches = text_batches(self.clip.text.ends(tokens).tolist(), batch_size)
        return RowBatches(len(rows), [(batch, [rows[row] for row in batch]) for batch in batches])

    def probabilities(self, rows: list[_Pair]) -> torch.Tensor:
        """Compute the probability that each pair belongs together, float64 (n,) on the device."""
        distinct = {id(image): image for image, _ in rows}
        place = {key: n for n, key in enumerate(distinct)}
        images = self.clip.embed_images(torch.stack([*distinct.values()]))
        mine = images[torch.tensor([place[id(image)] for image, _ in rows], device=images.device)]
        texts = self.clip.embed_tokens(torch.stack([ids for _, ids in rows]))
        model = self.clip.model
        with torch.inference_mode():
            logits = (
                model.logit_scale.double().exp() * (mine.double() * texts.double()).sum(-1) + model.logit_bias.double()
            )
            return logits.sigmoid()
