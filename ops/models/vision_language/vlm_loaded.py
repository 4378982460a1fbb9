"""Load the weights of a vision-language model and generate; the part of vlm.py that imports torch."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import torch
from PIL import Image

from pairmill.ops.models.clip.picture_normalisation import LEFT_OUT, as_bytes, normalisation
from pairmill.ops.models.device.device import dtype, exact_inference
from pairmill.ops.models.device.loading import once, placed
from pairmill.ops.models.generate.batch_part import BatchPart, n_tokens
from pairmill.ops.models.generate.greedy_answers import EXAMPLE_PROMPTS, Answerer, answer_in_parts, pinned
from pairmill.ops.models.generate.refilled_answers import RunningAnswers
from pairmill.ops.models.generate.refilled_decoding import RefilledBatch
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.model_digest import ModelError, transformers_folder
from pairmill.ops.models.vision_language.picture_settings import with_picture_settings
from pairmill.ops.models.vision_language.picture_tokens import PictureTokens, noise

# Assumed (height, width) of an image if the caller passes none: LLaVA-1.5's input size.
USUAL = (336, 336)
# Sizes of the pictures of a trial: no two of one area or shape.
EXAMPLE_SIZES = ((224, 298), (448, 336), (336, 336), (160, 480))


@dataclass(frozen=True)
class PreparedImages:
    """The inputs of one batch of a vision-language model, on the CPU.

    Images and prompts are kept to prepare parts of the batch again if memory runs out. ``seconds`` is the time of the
    preparation.
    """

    pictures: list[np.ndarray | None]
    prompts: list[str]
    parts: list[BatchPart]
    seconds: float

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of a batch that is prepared in one part."""
        (part,) = self.parts
        return part.inputs


class LoadedVlm:
    """The weights and the processor of a vision-language model in this process."""

    def __init__(self, model: Any, processor: Any, answerer: Answerer | None = None, spec: str = "") -> None:
        self.model = model
        tokenizer = getattr(processor, "tokenizer", processor)
        self.answerer = answerer or Answerer(model, tokenizer, spec, self.example)
        self.processor = processor
        self.tokens = PictureTokens(self)
        self.normalise = normalisation(processor) if model.device.type == "cuda" else None
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
        """Return this thread's copy of the processor.

        A shared fast tokenizer raises if one thread sets its padding while another thread encodes.
        """
        if not hasattr(self._own, "processor"):
            self._own.processor = copy.deepcopy(self.processor)
        return self._own.processor

    def batches(
        self, prompts: list[str], sizes: list[tuple[int, int] | None] | None, most: int, room: int = 0
    ) -> list[list[int]]:
        """Group row numbers into batches, first rows with an image, then rows without.

        A processor accepts only batches in which every row has an image, or none has.
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
        """Count the tokens of each row: of its prompt, and of its image of this size (height, width), if any."""
        processor = self.own_processor()
        tokenizer = getattr(processor, "tokenizer", processor)
        lengths = [len(ids) for ids in tokenizer([self._prompt(prompt, False) for prompt in prompts])["input_ids"]]
        seen = [row for row, size in enumerate(sizes) if size is not None]
        for row, tokens in zip(seen, self.tokens.of([size for size in sizes if size is not None]), strict=True):
            lengths[row] += tokens
        return lengths

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedImages:
        """Build the inputs of one batch on the CPU, in pinned memory if there is a GPU."""
        started = time.perf_counter()
        lengths = [0] * len(prompts)
        if self.answerer.decoder is not None:  # only then is a batch prefilled in parts
            lengths = self.lengths(prompts, [None if picture is None else picture.shape[:2] for picture in pictures])
        parts = [
            BatchPart(rows, pinned(self._inputs([pictures[row] for row in rows], [prompts[row] for row in rows])))
            for rows in self.answerer.parts(lengths)
        ]
        return PreparedImages(pictures, prompts, parts, time.perf_counter() - started)

    def padded_together(self, pictures: list[np.ndarray | None], prompts: list[str]) -> dict[str, Any]:
        """Build the inputs of rows that are padded to one length, in pinned memory if there is a GPU."""
        return pinned(self._inputs(pictures, prompts))

    def next_logits(self, inputs: dict[str, Any]) -> torch.Tensor:
        """Return the logits of the token that follows each prompt, (n, vocabulary) on the device."""
        last = {"logits_to_keep": 1} if "logits_to_keep" in signature(self.model.forward).parameters else {}
        with exact_inference():
            return self.model(**self._placed(inputs), **last, use_cache=False).logits[:, -1]

    def _inputs(self, pictures: list[np.ndarray | None], prompts: list[str]) -> dict[str, Any]:
        """Build the inputs of rows that are padded together; floats in the model's own type, half the bytes of fp32."""
        texts = [self._prompt(prompt, picture is not None) for picture, prompt in zip(pictures, prompts, strict=True)]
        settings: dict[str, Any] = {"text": texts, "padding": True, "return_tensors": "pt"}
        if pictures[0] is not None:
            # Pass Pillow images: for a bare array, a processor guesses which axis holds the colours.
            settings["images"] = [[Image.fromarray(picture)] for picture in pictures if picture is not None]
            settings |= LEFT_OUT if self.normalise else {}
        processor = self.own_processor()
        if pictures[0] is None and self.needs_picture:
            processor = processor.tokenizer
        found = dict(processor(**settings))
        if self.normalise and "pixel_values" in found:
            found["pixel_values"] = as_bytes(found["pixel_values"])
        return {name: self._narrowed(value) if torch.is_tensor(value) else value for name, value in found.items()}

    def _narrowed(self, value: torch.Tensor) -> torch.Tensor:
        """Convert floats to the model's type."""
        return value.to(self.model.dtype) if value.is_floating_point() else value

    def example(self) -> dict[str, Any]:
        """Build the inputs of four unlike rows: pictures of noise of several sizes, prompts of several lengths."""
        return self._inputs([noise(*size) for size in EXAMPLE_SIZES], list(EXAMPLE_PROMPTS))

    def infer(self, prepared: PreparedImages, max_tokens: int, slots: int = 0) -> list[Generation] | RunningAnswers:
        """Generate one answer per row, in halves if the device runs out of memory.

        With a captured decoder and ``slots``, only begin: the rows are decoded in that many slots beside other batches.
        """
        whole = replace(prepared, parts=[])
        if not slots or self.answerer.decoder is None:
            return self._in_halves(prepared, max_tokens)
        counts = n_tokens(prepared.parts)

        def read(batch: RefilledBatch) -> list[Generation]:
            return self._read(batch.tokens(), counts, whole.seconds + batch.seconds)

        def alone() -> list[Generation]:
            return self._in_halves(self.prepare(whole.pictures, whole.prompts), max_tokens)

        return self.answerer.slots.launch(prepared.parts, slots, max_tokens, self._placed, read, alone)

    def _in_halves(self, prepared: PreparedImages, max_tokens: int) -> list[Generation]:
        """Answer a batch of its own, in halves if the device runs out of memory."""

        def part(start: int, stop: int) -> PreparedImages:
            return self.prepare(prepared.pictures[start:stop], prepared.prompts[start:stop])

        def ask(ready: PreparedImages) -> list[Generation]:
            return self.answer(ready, max_tokens)

        return answer_in_parts(prepared, len(prepared.prompts), ask, part)

    def answer(self, prepared: PreparedImages, max_tokens: int) -> list[Generation]:
        """Generate greedily for one batch that fits the device."""
        started = time.perf_counter()
        generated = self.answerer.generate(prepared.parts, max_tokens, self._placed).cpu()
        seconds = prepared.seconds + time.perf_counter() - started
        return self._read(generated, n_tokens(prepared.parts), seconds)

    def _read(self, generated: torch.Tensor, prompts: list[int], seconds: float) -> list[Generation]:
        """Decode generated tokens to answers."""
        processor = self.own_processor()
        return self.answerer.read(generated, getattr(processor, "tokenizer", processor), prompts, seconds)

    def answer_to_the_end(self, prepared: PreparedImages, max_tokens: int) -> None:
        """Generate ``max_tokens`` tokens for each row, whatever end tokens it has, to measure how long that takes."""
        with self.answerer.endless():
            self.answer(prepared, max_tokens)

    def _placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Move the inputs to the device, normalise uint8 pixels there, and tell the model this processor's grids."""
        if self._grids and hasattr(self.model.config, "image_grid_pinpoints"):
            self.model.config.image_grid_pinpoints = self._grids
        placed = self.answerer.placed(inputs)
        pixels = placed.get("pixel_values")
        if self.normalise and pixels is not None and pixels.dtype == torch.uint8:
            placed["pixel_values"] = self.normalise(pixels).to(self.model.dtype)
        return placed

    def _prompt(self, prompt: str, with_picture: bool) -> str:
        """Put the prompt into the model's chat template; without a template, put the image token before the prompt."""
        if prompt not in getattr(self.processor, "task_prompts_without_inputs", ()):  # Florence-2's: '<CAPTION>' alone
            prompt = self._escape_special_tokens(prompt)
        processor = self.processor
        tokenizer = getattr(processor, "tokenizer", processor)
        if getattr(processor, "chat_template", None) or getattr(tokenizer, "chat_template", None):
            picture = [{"type": "image"}] if with_picture else []
            messages = [{"role": "user", "content": [*picture, {"type": "text", "text": prompt}]}]
            return processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
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
        tokenizer = getattr(self.processor, "tokenizer", self.processor)
        return int((ids == tokenizer.convert_tokens_to_ids(self.sign)).sum())

    def _escape_special_tokens(self, prompt: str) -> str:
        """Break up special tokens that the prompt itself spells, by a space after their first character.

        A web sentence with "<image>" in it would otherwise ask for a second image, and the processor would raise.
        """
        for token in self.special:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        return prompt


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
    folder = transformers_folder(spec, "vision-language models")
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
    return LoadedVlm(placed(model.eval(), spec), processor, spec=spec)
