"""Load the weights of an image–text matching model and run them; the part of image_text_match.py that imports torch."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pairmill.ops.models.clip.clip_loaded import LoadedClip
from pairmill.ops.models.clip.clip_loaded import load as load_clip
from pairmill.ops.models.device.device import dtype, exact_inference, load_transformers, once, placed
from pairmill.ops.models.device.failures import first_line
from pairmill.ops.models.device.row_batches import RowBatches, text_batches
from pairmill.ops.models.generate.greedy_answers import pin_inputs
from pairmill.ops.models.model_digest import ModelError, is_vision_language, transformers_folder
from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm, Row
from pairmill.ops.models.vision_language.vlm_loaded import load as load_vlm

# transformers' classes by the model type of a config.
CLASSES = {"blip": "BlipForImageTextRetrieval", "bridgetower": "BridgeTowerForImageAndTextRetrieval"}
EXAMPLE, SIGLIP = "hf:Salesforce/blip-itm-base-coco", "open_clip:ViT-B-16-SigLIP/webli"
QUESTION = 'Does this figure show "{text}"? Please answer yes or no.'
# One pair: the model's input of the image (3, h, w), and the text's token ids.
_Pair = tuple[torch.Tensor, Any]


def _pairs(
    pictures: list[np.ndarray], fit: Callable[[np.ndarray], torch.Tensor], tokens: Sequence[Any], lengths: list[int],
    batch_size: int,
) -> RowBatches:  # fmt: skip
    """Fit each distinct image to the model, and group pairs of texts of similar length into batches."""
    fitted = {key: fit(picture) for key, picture in {id(picture): picture for picture in pictures}.items()}
    rows = [(fitted[id(picture)], ids) for picture, ids in zip(pictures, tokens, strict=True)]
    batches = text_batches(lengths, batch_size)
    return RowBatches(len(rows), [(batch, [rows[row] for row in batch]) for batch in batches])


def _distinct(rows: list[_Pair]) -> tuple[torch.Tensor, torch.Tensor]:
    """Stack the distinct images of some pairs; return them and the number (n,) of each pair's image."""
    images = {id(image): image for image, _ in rows}
    place = {key: n for n, key in enumerate(images)}
    return torch.stack([*images.values()]), torch.tensor([place[id(image)] for image, _ in rows])


class LoadedMatcher:
    """Weights and processor of an image-text matching model with a matching head, in this process."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.images, self.tokenizer = model, processor.image_processor, processor.tokenizer
        self.context = model.config.text_config.max_position_embeddings - 2  # RoBERTa's positions begin at 2

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Resize each distinct image, and tokenize the texts; return batches of pairs on the CPU."""
        # Special tokens that a text spells ("[SEP]") are text.
        encoded = self.tokenizer(texts, truncation=True, max_length=self.context, split_special_tokens=True)
        lengths = [len(ids) for ids in encoded["input_ids"]]
        return _pairs(pictures, self._pixels, encoded["input_ids"], lengths, batch_size)

    def probabilities(self, rows: list[_Pair]) -> torch.Tensor:
        """Compute the probability that each pair matches, float64 (n,) in [0, 1], on the device."""
        images, which = _distinct(rows)
        pixels, which = images.to(self.model.device, self.model.dtype), which.to(self.model.device)
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


class PairwiseClip:
    """A CLIP that was trained with a pairwise sigmoid, as SigLIP is (Zhai et al. 2023, arXiv 2303.15343).

    Such a model learns for each picture and text on its own whether they belong together: the probability is the
    sigmoid of the scaled cosine plus a bias. A CLIP that was trained with a softmax ranks texts, and has no bias.
    """

    def __init__(self, clip: LoadedClip, spec: str) -> None:
        self.clip = clip
        if getattr(clip.model, "logit_bias", None) is None:
            raise ModelError(
                f"model '{spec}' was not trained on pairs (it has no logit_bias), so its cosines are no probabilities; "
                f"name one such as {SIGLIP}, or compare by `similarity`"
            )

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Resize each distinct image, and tokenize the texts; return batches of pairs on the CPU."""
        tokens = self.clip.tokenizer(texts)
        return _pairs(pictures, self.clip.fit, tokens, self.clip.text.ends(tokens).tolist(), batch_size)

    def probabilities(self, rows: list[_Pair]) -> torch.Tensor:
        """Compute the probability that each pair matches, float64 (n,) in [0, 1], on the device."""
        distinct, which = _distinct(rows)
        images = self.clip.embed_images(distinct)
        mine = images[which.to(images.device)]
        texts = self.clip.embed_tokens(torch.stack([ids for _, ids in rows]))
        model = self.clip.model
        with torch.inference_mode():
            cosines = (mine.double() * texts.double()).sum(-1)
            return (model.logit_scale.double().exp() * cosines + model.logit_bias.double()).sigmoid()


@dataclass(frozen=True)
class Questions:
    """Rows of (picture, question) with the model's inputs, which are rebuilt for a part of the rows."""

    vlm: LoadedVlm
    rows: list[Row]
    inputs: dict[str, Any]

    @classmethod
    def of(cls, vlm: LoadedVlm, rows: list[Row]) -> "Questions":
        """Build the inputs of some rows, in pinned memory if there is a GPU."""
        return cls(vlm, rows, pin_inputs(vlm.padded(rows)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, at: slice) -> "Questions":
        rows = self.rows[at]
        return self if len(rows) == len(self) else Questions.of(self.vlm, rows)


class AskedMatcher:
    """A vision-language model that is asked QUESTION; the score comes from the probabilities of its next token.

    This is VQAScore (Lin et al. 2024, arXiv 2404.01291), with two changes: the score is the share of "yes" in "yes or
    no", and lower-case and capitalised answers count.
    """

    def __init__(self, vlm: LoadedVlm, spec: str) -> None:
        if vlm.model.config.is_encoder_decoder:
            raise ModelError(f"model '{spec}': its answers have an encoder of their own; name one that only decodes")
        self.vlm = vlm
        self.yes, self.no = _answer_tokens(vlm.own_tokenizer(), spec)

    def prepare(self, pictures: list[np.ndarray], texts: list[str], batch_size: int) -> RowBatches:
        """Build the inputs of the questions on the CPU, in batches of similar length."""
        rows: list[Row] = list(zip(pictures, (QUESTION.format(text=text) for text in texts), strict=True))
        batches = text_batches(self.vlm.prompt_tokens(rows), batch_size)
        return RowBatches(len(rows), [(at, Questions.of(self.vlm, [rows[n] for n in at])) for at in batches])

    def probabilities(self, asked: Questions) -> torch.Tensor:
        """Compute the share of "yes" in the probability of "yes" or "no", float64 (n,) in [0, 1], on the device."""
        logits = self.vlm.next_logits(asked.inputs).double()
        return (logits[:, self.yes].logsumexp(-1) - logits[:, self.no].logsumexp(-1)).sigmoid()


def _answer_tokens(tokenizer: Any, spec: str) -> tuple[list[int], list[int]]:
    """Return the first tokens of "yes" and of "no", however written. Raises ModelError if both begin alike."""
    yes, no = (
        {tokenizer.encode(f"{space}{form}", add_special_tokens=False)[0] for space in ("", " ") for form in forms}
        for forms in (("yes", "Yes"), ("no", "No"))
    )  # fmt: skip
    if not yes - no or not no - yes:
        raise ModelError(f"model '{spec}': its tokenizer begins 'yes' and 'no' by one token; name another model")
    return sorted(yes - no), sorted(no - yes)


Matcher = LoadedMatcher | AskedMatcher | PairwiseClip


def load(spec: str, precision: str) -> Matcher:
    """Load an image-text matcher: a matching head, a SigLIP of open_clip, or a vision-language model to ask.

    Weights load once per process. Raises ModelError with the remedy if the model is missing or of another kind.
    """
    if spec.startswith("open_clip:"):
        return PairwiseClip(load_clip(spec, precision), spec)
    folder = Path(transformers_folder(spec, "image–text matching models"))
    if is_vision_language(spec) and json.loads((folder / "config.json").read_bytes())["model_type"] not in CLASSES:
        return AskedMatcher(load_vlm(spec, precision, ()), spec)
    return _with_head(spec, precision)


@once
def _with_head(spec: str, precision: str) -> LoadedMatcher:
    """Load a model of CLASSES."""
    kind = dtype(precision)
    folder = transformers_folder(spec, "image–text matching models")
    try:
        made = CLASSES[json.loads((Path(folder) / "config.json").read_bytes())["model_type"]]
        model, processor, missing = load_transformers(folder, made, "AutoProcessor", kind)
    except Exception as error:  # a config of another model kind, a missing processor, damaged weights
        raise ModelError(
            f"model '{spec}' does not load as an image–text matching model (BLIP or BridgeTower) or as another "
            f"vision-language model: {first_line(error)}; name one such as {EXAMPLE}"
        ) from error
    if lacking := {name for name in missing if "position_ids" not in name}:
        raise ModelError(f"model '{spec}': its weights lack {min(lacking)}; name a model such as {EXAMPLE}")
    return LoadedMatcher(placed(model, spec), processor)
