"""Load the weights of an image–text matching model and run them; the part of image_text_match.py that imports torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairmill.ops.models.clip.clip_loaded import load as load_clip
from pairmill.ops.models.device.device import dtype, exact_inference, text_batches
from pairmill.ops.models.device.loading import once, placed
from pairmill.ops.models.device.row_batches import RowBatches
from pairmill.ops.models.matching.pairwise_clip import PairwiseClip
from pairmill.ops.models.matching.yes_or_no import AskedMatcher
from pairmill.ops.models.model_digest import ModelError, transformers_folder
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm_loaded import load as load_vlm

# transformers' classes by the model type of a config.
CLASSES = {"blip": "BlipForImageTextRetrieval", "bridgetower": "BridgeTowerForImageAndTextRetrieval"}
EXAMPLE = "hf:Salesforce/blip-itm-base-coco"
# One pair: the model's input of the image (3, h, w), and the text's token ids.
_Pair = tuple[torch.Tensor, list[int]]


class LoadedMatcher:
    """The weights and the processor of an image–text matching model, in this process."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.images, self.tokenizer = model, processor.image_processor, processor.tokenizer
        self.context = model.config.text_config.max_position_embeddings - 2  # RoBERTa's positions begin at 2

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Resize each distinct image, tokenize the texts, and group pairs of texts of similar length into batches."""
        distinct = {id(picture): picture for picture in pictures}
        pixels = {key: self._pixels(picture) for key, picture in distinct.items()}
        # Special tokens that a text spells ("[SEP]") are text.
        encoded = self.tokenizer(texts, truncation=True, max_length=self.context, split_special_tokens=True)
        rows = [(pixels[id(picture)], ids) for picture, ids in zip(pictures, encoded["input_ids"], strict=True)]
        batches = text_batches([len(ids) for _, ids in rows], batch_size)
        return RowBatches(len(rows), [(batch, [rows[row] for row in batch]) for batch in batches])

    def probabilities(self, rows: list[_Pair]) -> torch.Tensor:
        """Compute the probability that each pair matches, float64 (n,) on the device."""
        distinct = {id(pixels): pixels for pixels, _ in rows}
        place = {key: n for n, key in enumerate(distinct)}
        pixels = torch.stack([*distinct.values()]).to(self.model.device, self.model.dtype)
        which = torch.tensor([place[id(each)] for each, _ in rows], device=self.model.device)
        longest = max(len(ids) for _, ids in rows)
        pad = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([[*ids, *[pad] * (longest - len(ids))] for _, ids in rows], device=self.model.device)
        sizes = torch.tensor([len(ids) for _, ids in rows], device=self.model.device)
        mask = (torch.arange(longest, device=self.model.device) < sizes[:, None]).long()
        with exact_inference():
            return self._logits(pixels, which, ids, mask).double().softmax(-1)[:, 1]

    def _pixels(self, picture: np.ndarray) -> torch.Tensor:
        """Resize and normalise one image as the model's processor does."""
        return self.images(picture, input_data_format="channels_last", return_tensors="pt")["pixel_values"][0]

    def _logits(self, pixels: torch.Tensor, which: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the matching head's logits (n, 2) of rows with image ``which`` of ``pixels`` and text ``ids``."""
        if self.model.config.model_type == "blip":
            seen = self.model.vision_model(pixel_values=pixels).last_hidden_state[which]
            everything = torch.ones(seen.shape[:2], dtype=torch.long, device=seen.device)
            read = self.model.text_encoder(
                input_ids=ids, attention_mask=mask, encoder_hidden_states=seen, encoder_attention_mask=everything
            )
            return self.model.itm_head(read.last_hidden_state[:, 0])
        shown = pixels[which]
        whole = torch.ones((len(shown), *shown.shape[2:]), dtype=torch.long, device=shown.device)
        return self.model(input_ids=ids, attention_mask=mask, pixel_values=shown, pixel_mask=whole).logits


Matcher = LoadedMatcher | AskedMatcher | PairwiseClip


def load(spec: str, precision: str) -> Matcher:
    """Load a model with a matching head, a SigLIP of open_clip, or another vision-language model to ask it.

    Weights load once per process. Raises ModelError with the remedy if the model is missing or of another kind.
    """
    if spec.startswith("open_clip:"):
        return PairwiseClip(load_clip(spec, precision), spec)
    folder = Path(transformers_folder(spec, "image–text matching models"))
    if is_vision_language(spec) and json.loads((folder / "config.json").read_bytes())["model_type"] not in CLASSES:
        return AskedMatcher(load_vlm(spec, precision), spec)
    return _with_head(spec, precision)


@once
def _with_head(spec: str, precision: str) -> LoadedMatcher:
    """Load a model of CLASSES."""
    kind = dtype(precision)
    folder = transformers_folder(spec, "image–text matching models")
    import transformers
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # one progress bar per worker would overwrite the run's own
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(folder, **safe)
        made: Any = getattr(transformers, CLASSES[config.model_type])
        processor = transformers.AutoProcessor.from_pretrained(folder, **safe)
        model, report = made.from_pretrained(folder, dtype=kind, weights_only=True, output_loading_info=True, **safe)
    except Exception as error:  # a config of another model kind, a missing processor, damaged weights
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ModelError(
            f"model '{spec}' does not load as an image–text matching model (BLIP or BridgeTower) or as another "
            f"vision-language model: {reason}; name one such as {EXAMPLE}"
        ) from error
    if lacking := {name for name in report["missing_keys"] if "position_ids" not in name}:
        raise ModelError(f"model '{spec}': its weights lack {min(lacking)}; name a model such as {EXAMPLE}")
    return LoadedMatcher(placed(model.eval(), spec), processor)
