"""Load the weights of a vision-language model and generate; the part of vlm.py that imports torch."""

from __future__ import annotations

import copy
import threading
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image

from pairmill.ops.models.clip.picture_normalisation import LEFT_OUT, normalisation
from pairmill.ops.models.device.device import dtype
from pairmill.ops.models.device.loading import once, placed
from pairmill.ops.models.generate.greedy_answers import (
    Answerer,
    answer_in_parts,
    n_tokens,
    pinned,
    similar_length_batches,
)
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.model_digest import ModelError, resolve
from pairmill.ops.models.vision_language.picture_settings import with_picture_settings

# Assumed (height, width) of an image if the caller passes none: LLaVA-1.5's input size.
USUAL = (336, 336)


@dataclass(frozen=True)
class PreparedImages:
    """The inputs of one batch of a vision-language model, on the CPU.

    Images and prompts are kept to prepare parts of the batch again if memory runs out. ``seconds`` is the time of the
    preparation.
    """

    pictures: list[np.ndarray | None]
    prompts: list[str]
    inputs: dict[str, Any]
    seconds: float


class LoadedVlm:
    """The weights and the processor of a vision-language model in this process."""

    def __init__(self, model: Any, processor: Any, answerer: Answerer | None = None) -> None:
        self.model = model
        tokenizer = getattr(processor, "tokenizer", processor)
        self.answerer = answerer or Answerer(model, tokenizer)
        self.processor = processor
        self.normalise = normalisation(processor) if model.device.type == "cuda" else None
        self._own = threading.local()
        named = (token.content for token in tokenizer.added_tokens_decoder.values() if token.special)
        self.special = sorted({*named, getattr(processor, "image_token", ""), *tokenizer.all_special_tokens} - {""})

    def own_processor(self) -> Any:
        """Return this thread's copy of the processor.

        A shared fast tokenizer raises if one thread sets its padding while another thread encodes.
        """
        if not hasattr(self._own, "processor"):
            self._own.processor = copy.deepcopy(self.processor)
        return self._own.processor

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None, most: int) -> list[list[int]]:
        """Group row numbers into batches of similar length, first rows with an image, then rows without.

        A processor accepts only batches in which every row has an image, or none has.
        """
        processor = self.own_processor()
        tokenizer = getattr(processor, "tokenizer", processor)
        lengths = [len(ids) for ids in tokenizer([self._prompt(prompt, False) for prompt in prompts])["input_ids"]]
        seen = {row: size for row, size in enumerate(sizes or [USUAL] * len(prompts)) if size is not None}
        for row, tokens in zip(seen, _picture_tokens(processor, list(seen.values())), strict=True):
            lengths[row] += tokens
        bare = [row for row in range(len(prompts)) if row not in seen]
        return [
            [rows[place] for place in batch]
            for rows in (list(seen), bare)
            for batch in similar_length_batches([lengths[row] for row in rows], most)
        ]

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedImages:
        """Build the inputs of one batch on the CPU, in pinned memory if there is a GPU."""
        started = time.perf_counter()
        texts = [self._prompt(prompt, picture is not None) for picture, prompt in zip(pictures, prompts, strict=True)]
        settings: dict[str, Any] = {"text": texts, "padding": True, "return_tensors": "pt"}
        if pictures[0] is not None:
            # Pass Pillow images: for a bare array, a processor guesses which axis holds the colours.
            settings["images"] = [[Image.fromarray(picture)] for picture in pictures if picture is not None]
            settings |= LEFT_OUT if self.normalise else {}
        inputs = pinned(dict(self.own_processor()(**settings)))
        return PreparedImages(pictures, prompts, inputs, time.perf_counter() - started)

    def infer(self, prepared: PreparedImages, max_tokens: int) -> list[Generation]:
        """Generate one answer per row, in halves if the device runs out of memory."""

        def part(start: int, stop: int) -> PreparedImages:
            return self.prepare(prepared.pictures[start:stop], prepared.prompts[start:stop])

        def ask(ready: PreparedImages) -> list[Generation]:
            return self.answer(ready, max_tokens)

        return answer_in_parts(prepared, len(prepared.prompts), ask, part)

    def answer(self, prepared: PreparedImages, max_tokens: int) -> list[Generation]:
        """Generate greedily for one batch that fits the device."""
        started = time.perf_counter()
        generated = self.answerer.generate(self._placed(prepared.inputs), max_tokens).cpu()
        seconds = prepared.seconds + time.perf_counter() - started
        processor = self.own_processor()
        tokenizer = getattr(processor, "tokenizer", processor)
        return self.answerer.read(generated, tokenizer, n_tokens(prepared.inputs), seconds)

    def _placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move the inputs to the device, and normalise uint8 pixels there."""
        placed = self.answerer.placed(inputs)
        pixels = placed.get("pixel_values")
        if self.normalise and pixels is not None and pixels.dtype == torch.uint8:
            placed["pixel_values"] = self.normalise(pixels).to(self.model.dtype)
        return placed

    def _prompt(self, prompt: str, with_picture: bool) -> str:
        """Put the prompt into the model's chat template; without a template, put the image token before the prompt."""
        prompt, processor = self._escape_special_tokens(prompt), self.processor
        tokenizer = getattr(processor, "tokenizer", processor)
        if getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None):
            picture = [{"type": "image"}] if with_picture else []
            messages = [{"role": "user", "content": [*picture, {"type": "text", "text": prompt}]}]
            return processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return f"{getattr(processor, 'image_token', '') if with_picture else ''}{prompt}"

    def _escape_special_tokens(self, prompt: str) -> str:
        """Break up special tokens that the prompt itself spells, by a space after their first character.

        A web sentence with "<image>" in it would otherwise ask for a second image, and the processor would raise.
        """
        for token in self.special:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt


def _picture_tokens(processor: Any, sizes: list[tuple[int, int]]) -> list[int]:
    """Count the tokens that each image (height, width) becomes; 0 each if the processor cannot tell."""
    count = getattr(processor, "_get_num_multimodal_tokens", None)
    if count is None or not sizes:
        return [0] * len(sizes)
    try:
        return list(count(image_sizes=sizes)["num_image_tokens"])
    except (AttributeError, KeyError, TypeError, NotImplementedError):
        return [0] * len(sizes)


def load(spec: str, precision: str, pictures: tuple[tuple[str, int], ...] = ()) -> LoadedVlm:
    """Load the model once per process; with picture settings, share the weights of the model without them.

    Raises ModelError with the remedy if it is missing, does not load, or has no such picture settings.
    """
    return _load(spec, precision, pictures)


@once
def _load(spec: str, precision: str, pictures: tuple[tuple[str, int], ...]) -> LoadedVlm:
    """Load the model, as `load` does."""
    if pictures:
        whole = _load(spec, precision, ())
        return LoadedVlm(whole.model, with_picture_settings(whole.processor, dict(pictures), spec), whole.answerer)
    kind = dtype(precision)
    if not spec.startswith("hf:"):
        raise ModelError(f"model '{spec}': transformers loads vision-language models; write 'hf:NAME_OR_FOLDER'")
    folder = str(resolve(spec))
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # one progress bar per worker would overwrite the run's own
    try:
        processor = AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: Any = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=kind, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # a config without classes, a missing processor, damaged weights
        raise ModelError(f"model '{spec}' does not load: {error}; check its config, processor and weights") from error
    return LoadedVlm(placed(model.eval(), spec), processor)
