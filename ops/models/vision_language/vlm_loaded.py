"""Load the weights of a vision-language model and generate; the part of vlm.py that imports torch."""

import copy
import threading
from collections.abc import Sequence
from contextlib import suppress
from inspect import signature
from typing import Any

import numpy as np
import torch
from PIL import Image

from pairmill.ops.models.device.batch_size import noise
from pairmill.ops.models.device.device import dtype, exact_inference, load_transformers, once, placed
from pairmill.ops.models.generate.greedy_answers import EXAMPLE_PROMPTS, Answerer
from pairmill.ops.models.generate.loaded_model import LoadedModel, Prepared
from pairmill.ops.models.model_digest import ModelError, transformers_folder
from pairmill.ops.models.vision_language import picture_processor

# A picture (h, w, 3) uint8 RGB, None for text alone, and its prompt.
Row = tuple[np.ndarray | None, str]
# Assumed (height, width) of an image if the caller passes none: LLaVA-1.5's input size.
USUAL = (336, 336)
# Sizes that a processor with a fixed number of tokens gives one count: a square, a wide, a tall, a small picture.
PROBES = ((448, 448), (448, 1344), (1344, 448), (64, 96))
# Sizes of the pictures of a trial: no two of one area or shape.
EXAMPLE_SIZES = ((224, 298), (448, 336), (336, 336), (160, 480))


class LoadedVlm(LoadedModel):
    """Weights and processor of a vision-language model, in this process; its rows are (picture or None, prompt)."""

    def __init__(self, model: Any, processor: Any, answerer: Answerer | None = None, spec: str = "") -> None:
        self.model = model
        tokenizer = _tokenizer(processor)
        self.answerer = answerer or Answerer(model, tokenizer, spec, self.examples)
        self.processor = processor
        self._tokens_of_size: dict[tuple[int, int], int] = {}
        self._tokens_of_all: int | None = None
        self.normalise = picture_processor.normalisation(processor) if model.device.type == "cuda" else None
        # LLaVA-NeXT's and OneVision's: the model joins tiles by the grid that the processor chose.
        self._grids = getattr(getattr(processor, "image_processor", None), "image_grid_pinpoints", None)
        self._own = threading.local()
        self.sign = str(getattr(processor, "image_token", ""))  # BLIP-2's is no string
        named = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
        self.special = sorted({*named, self.sign, *tokenizer.all_special_tokens} - {""})
        self.takes_sign = self._takes_sign()
        # PaliGemma's refuses a prompt without an image, which the model itself answers.
        self.needs_picture = type(processor).__name__ == "PaliGemmaProcessor"

    def own_processor(self) -> Any:
        """Return the calling thread's copy of the processor.

        A shared fast tokenizer raises if one thread sets its padding while another thread encodes.
        """
        if not hasattr(self._own, "processor"):
            self._own.processor = copy.deepcopy(self.processor)
        return self._own.processor

    def own_tokenizer(self) -> Any:
        """Return the tokenizer of the calling thread's processor."""
        return _tokenizer(self.own_processor())

    def batches(
        self, prompts: list[str], sizes: list[tuple[int, int] | None] | None, most: int, room: int = 0
    ) -> list[list[int]]:
        """Group row numbers into batches, first of rows with an image, then of rows without.

        A processor accepts only batches in which every row has an image, or none has.

        A batch has at most ``most`` rows and ``room`` prompt tokens (0: any number).
        """
        given: Sequence[tuple[int, int] | None] = sizes or [USUAL] * len(prompts)
        lengths = self.lengths(prompts, given)
        seen, bare = ([row for row, size in enumerate(given) if bool(size) is shown] for shown in (True, False))
        return [
            [rows[place] for place in batch]
            for rows in (seen, bare)
            for batch in self.answerer.batches([lengths[row] for row in rows], most, room)
        ]

    def lengths(self, prompts: list[str], sizes: Sequence[tuple[int, int] | None]) -> list[int]:
        """Return the number of tokens of each row: of its prompt, and of its image of that (height, width), if any."""
        lengths = [len(ids) for ids in self.own_tokenizer()([self._prompt(p, False) for p in prompts])["input_ids"]]
        seen = [row for row, size in enumerate(sizes) if size is not None]
        for row, tokens in zip(seen, self.picture_tokens([size for size in sizes if size is not None]), strict=True):
            lengths[row] += tokens
        return lengths

    def picture_tokens(self, sizes: Sequence[tuple[int, int]]) -> list[int]:
        """Return the number of tokens of pictures of these (height, width); 0 for a size that the processor rejects.

        For a processor without a counting method (SmolVLM's), the inputs of one picture of each new size are built,
        some milliseconds each, or of four pictures in all if these show that the size does not matter.
        """
        if not sizes:
            return []
        if (count := getattr(self.own_processor(), "_get_num_multimodal_tokens", None)) is not None:
            # some processors inherit a count that they do not support
            with suppress(AttributeError, KeyError, TypeError, NotImplementedError):
                return list(count(image_sizes=list(sizes))["num_image_tokens"])
        if not self._tokens_of_size:
            tried = {self._tokens_by_trial(size) for size in PROBES}
            self._tokens_of_all = tried.pop() if len(tried) == 1 else None
        return [self._tokens_by_trial(size) if self._tokens_of_all is None else self._tokens_of_all for size in sizes]

    def _tokens_by_trial(self, size: tuple[int, int]) -> int:
        """Count the tokens that one picture of this size adds to a prompt."""
        if size not in self._tokens_of_size:
            try:
                shown, bare = (self.padded([(picture, "a")])["input_ids"] for picture in (noise(*size), None))
                self._tokens_of_size[size] = shown.shape[1] - bare.shape[1]
            except Exception:  # a processor that needs pictures, or refuses this size: the row itself is reported later
                self._tokens_of_size[size] = 0
        return self._tokens_of_size[size]

    def prompt_tokens(self, rows: list[Row]) -> list[int]:
        """Return the number of tokens of each row's prompt and image."""
        sizes = [None if picture is None else (picture.shape[0], picture.shape[1]) for picture, _ in rows]
        return self.lengths([prompt for _, prompt in rows], sizes)

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Prepared:
        """Build the inputs of one batch on the CPU, in pinned memory if there is a GPU."""
        return self.prepare_rows(list(zip(pictures, prompts, strict=True)))

    def next_logits(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the logits of the token that follows each prompt, (n, vocabulary) on the device."""
        last = {"logits_to_keep": 1} if "logits_to_keep" in signature(self.model.forward).parameters else {}
        with exact_inference():
            return self.model(**self.placed(inputs), **last, use_cache=False).logits[:, -1]

    def padded(self, rows: list[Row]) -> dict[str, Any]:
        """Build the inputs of these rows, padded to the longest; floats have the model's dtype, half of fp32."""
        pictures = [picture for picture, _ in rows]
        texts = [self._prompt(prompt, picture is not None) for picture, prompt in rows]
        settings: dict[str, Any] = {"text": texts, "padding": True, "return_tensors": "pt"}
        if pictures[0] is not None:
            # Pass Pillow images: for a bare array, a processor guesses which axis holds the colours.
            settings["images"] = [[Image.fromarray(picture)] for picture in pictures if picture is not None]
            settings |= picture_processor.LEFT_OUT if self.normalise else {}
        processor = self.own_processor()
        if pictures[0] is None and self.needs_picture:
            processor = processor.tokenizer
        found = dict(processor(**settings))
        if (mask := found.get("pixel_attention_mask")) is not None and mask.ndim == 4 and bool(mask.all()):
            del found["pixel_attention_mask"]  # Idefics and SmolVLM make it themselves: 8 bytes a pixel to copy
        if self.normalise and "pixel_values" in found:
            found["pixel_values"] = picture_processor.as_bytes(found["pixel_values"])
        floats = {name: value for name, value in found.items() if torch.is_tensor(value) and value.is_floating_point()}
        return found | {name: value.to(self.model.dtype) for name, value in floats.items()}

    def example(self, sizes: Sequence[tuple[int, int]] = EXAMPLE_SIZES) -> dict[str, Any]:
        """Build the inputs of four different rows: noise pictures of these sizes, prompts of several lengths."""
        given = self.padded(list(zip((noise(*size) for size in sizes), EXAMPLE_PROMPTS, strict=True)))
        return self._normalised(given)

    def examples(self) -> list[dict[str, Any]]:
        """Build two batches for the trial of captured decoding: pictures of several sizes, and of one size.

        A vision tower may take pictures of one size by another code path, without a padding mask.
        """
        return [self.example(), self.example([USUAL] * len(EXAMPLE_PROMPTS))]

    def placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs moved to the device, with uint8 pixels normalised there; set the model's image grids."""
        if self._grids and hasattr(self.model.config, "image_grid_pinpoints"):
            self.model.config.image_grid_pinpoints = self._grids
        return self._normalised(self.answerer.placed(inputs))

    def _normalised(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs with uint8 pixels as the model takes them."""
        pixels = inputs.get("pixel_values")
        if self.normalise is None or pixels is None or pixels.dtype != torch.uint8:
            return inputs
        return inputs | {"pixel_values": self.normalise(pixels).to(self.model.dtype)}

    def _prompt(self, prompt: str, with_picture: bool) -> str:
        """Put the prompt into the model's chat template; without a template, put the image token before the prompt."""
        if prompt not in getattr(self.processor, "task_prompts_without_inputs", ()):  # Florence-2's: '<CAPTION>' alone
            prompt = self._escape_special_tokens(prompt)
        if getattr(self.processor, "chat_template", None) or getattr(_tokenizer(self.processor), "chat_template", None):
            picture = [{"type": "image"}] if with_picture else []
            messages = [{"role": "user", "content": [*picture, {"type": "text", "text": prompt}]}]
            return self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return f"{self.sign if with_picture and self.takes_sign else ''}{prompt}"

    def _takes_sign(self) -> bool:
        """Return whether a prompt without a chat template names its image; BLIP-2's processor adds its own sign."""
        if not self.sign or getattr(self.processor, "chat_template", None):
            return True
        counts = [self._n_signs(f"{sign}a") for sign in (self.sign, "")]
        return not counts[1] or counts[0] == counts[1]

    def _n_signs(self, text: str) -> int:
        """Count the image tokens that the processor makes of a text and one image; 0 if it refuses them."""
        try:
            picture = [[Image.fromarray(noise(*USUAL))]]
            ids = self.own_processor()(text=[text], images=picture, return_tensors="pt")["input_ids"]
        except (ValueError, TypeError, IndexError, RuntimeError):
            return 0
        return int((ids == _tokenizer(self.processor).convert_tokens_to_ids(self.sign)).sum())

    def _escape_special_tokens(self, prompt: str) -> str:
        """Break up special tokens that the prompt spells, such as "<image>" of a web sentence, by a space."""
        for token in self.special:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt


def _tokenizer(processor: Any) -> Any:
    """Return the tokenizer of a processor; a processor of text alone is one itself."""
    return getattr(processor, "tokenizer", processor)


@once
def load(spec: str, precision: str, pictures: tuple[tuple[str, int], ...]) -> LoadedVlm:
    """Load the model, once per process; models with other picture settings share its weights.

    Raises ModelError with the remedy if it is missing, does not load, or has no such picture settings.
    """
    if pictures:
        whole = load(spec, precision, ())
        return LoadedVlm(
            whole.model, picture_processor.with_picture_settings(whole.processor, dict(pictures), spec), whole.answerer
        )
    kind = dtype(precision)
    folder = transformers_folder(spec, "vision-language models")
    try:
        model, processor, _ = load_transformers(folder, "AutoModelForImageTextToText", "AutoProcessor", kind)
    except Exception as error:  # a config without classes, a missing processor, damaged weights
        raise ModelError(f"model '{spec}' does not load: {error}; check its config, processor and weights") from error
    return LoadedVlm(placed(model, spec), processor, spec=spec)
