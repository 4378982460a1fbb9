"""Load a vision-language model's weights and generate; the half of ops.models.vlm that imports torch."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image

from ops.models.device import device, dtype, text_batches
from ops.models.generation import Generation
from ops.models.greedy_answers import Answerer, answer_what_fits
from ops.models.model_digest import ModelError, resolve


def generate(
    spec: str,
    precision: str,
    batch_size: int,
    pictures: list[np.ndarray | None],
    prompts: list[str],
    max_tokens: int,
) -> list[Generation]:
    """Generate an answer a row, in the order given. Raises ModelError when the model does not load."""
    if not prompts:
        return []
    model = load(spec, precision)

    def ask(rows: list[int]) -> list[Generation]:
        return model.answer([pictures[row] for row in rows], [prompts[row] for row in rows], max_tokens)

    answers: dict[int, Generation] = {}
    # A processor takes batches in which every row has a picture, or none has.
    for with_picture in (True, False):
        rows = [row for row, picture in enumerate(pictures) if (picture is not None) == with_picture]
        for batch in text_batches([len(prompts[row]) for row in rows], batch_size):
            found = answer_what_fits(ask, [rows[place] for place in batch])
            answers.update(zip((rows[place] for place in batch), found, strict=True))
    return [answers[row] for row in range(len(prompts))]


class LoadedVlm:
    """The weights and the processor of a vision-language model in this process."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        self.tokenizer = getattr(processor, "tokenizer", processor)
        self.answerer = Answerer(model, self.tokenizer)
        named = (token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special)
        self.special = sorted(
            {*named, getattr(processor, "image_token", ""), *self.tokenizer.all_special_tokens} - {""}
        )

    def answer(self, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate greedily for one batch, in which every row has a picture or none has."""
        started = time.perf_counter()
        inputs = self._inputs(pictures, prompts)
        output = self.answerer.generate(inputs, max_tokens)
        return self.answerer.read(self._generated(output, inputs), started)

    def _inputs(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Any:
        texts = [self._prompt(prompt, picture is not None) for picture, prompt in zip(pictures, prompts, strict=True)]
        settings: dict[str, Any] = {"text": texts, "padding": True, "return_tensors": "pt"}
        if pictures[0] is not None:
            # As Pillow images: of a bare array a processor guesses which axis holds the colours.
            settings["images"] = [[Image.fromarray(picture)] for picture in pictures if picture is not None]
        inputs = self.processor(**settings).to(self.model.device)
        return {
            name: value.to(self.model.dtype) if torch.is_tensor(value) and value.is_floating_point() else value
            for name, value in inputs.items()
        }

    def _prompt(self, prompt: str, with_picture: bool) -> str:
        """Put the prompt into the model's chat template; without one, put the picture's token before it.

        What the prompt itself writes like a special token stays text: a sentence of the web with "<image>" in it would
        ask for a second picture, which no processor can find.
        """
        for token in self.special:
            prompt = prompt.replace(token, f"{token[0]} {token[1:]}")
        if getattr(self.processor, "chat_template", None) or getattr(self.tokenizer, "chat_template", None):
            picture = [{"type": "image"}] if with_picture else []
            messages = [{"role": "user", "content": [*picture, {"type": "text", "text": prompt}]}]
            return self.processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        return f"{getattr(self.processor, 'image_token', '') if with_picture else ''}{prompt}"

    def _generated(self, output: torch.Tensor, inputs: Any) -> torch.Tensor:
        """Cut the prompt off the output, which a decoder repeats and an encoder-decoder does not."""
        given = inputs["input_ids"]
        length = given.shape[1]
        repeats = output.shape[1] >= length and torch.equal(output[:, :length], given)
        return output[:, length:] if repeats and not self.model.config.is_encoder_decoder else output


@cache
def load(spec: str, precision: str) -> LoadedVlm:
    """Load the model once a process. Raises ModelError with the remedy."""
    kind = dtype(precision)
    if not spec.startswith("hf:"):
        raise ModelError(f"model '{spec}': transformers loads vision-language models; write 'hf:NAME_OR_FOLDER'")
    folder = str(resolve(spec))
    from transformers import AutoModelForImageTextToText, AutoProcessor
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # one bar a worker would overwrite the run's own
    try:
        processor = AutoProcessor.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        model: Any = AutoModelForImageTextToText.from_pretrained(
            folder, dtype=kind, local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # a config without its classes, a missing processor, damaged weights
        raise ModelError(f"model '{spec}' does not load: {error}; check its config, processor and weights") from error
    return LoadedVlm(model.eval().to(device()), processor)
