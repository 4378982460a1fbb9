"""Check a vision-language model before a run: does it load, what does a picture cost, is its decoding captured?"""

import time
from dataclasses import dataclass
from typing import Any

import torch

from pairmill.ops.models.device.batch_size import noise
from pairmill.ops.models.device.device import exact_inference, weight_bytes
from pairmill.ops.models.device.engine import held_bytes
from pairmill.ops.models.device.failures import first_line
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.greedy_answers import EXAMPLE_PROMPTS
from pairmill.ops.models.generate.trial import TOKENS, why_not_capturable, why_not_captured
from pairmill.ops.models.vision_language.vlm_loaded import EXAMPLE_SIZES, LoadedVlm, load


@dataclass(frozen=True)
class ModelCheck:
    """Measurements of a vision-language model on four different pictures and prompts."""

    architecture: str  # the model's class
    weights: int  # bytes
    tokens: dict[tuple[int, int], int]  # of a picture by its (height, width)
    milliseconds: float  # CPU time to prepare one picture
    input_bytes: int  # of one picture
    alike: int  # rows, of four, whose answers in one batch are those one by one
    not_captured: str  # '' if a trial of captured decoding agrees with ``generate``, else why it does not
    token_bytes: int  # of the keys and values of one token; 0 if unknown


def check_model(spec: str, precision: str, pictures: tuple[tuple[str, int], ...], side: int) -> ModelCheck:
    """Load a model and try it on pictures whose shorter side is ``side`` pixels. Raises ModelError as `load` does."""
    loaded = load(spec, precision, pictures)
    sizes = [(side, side), (side, side * 4 // 3), (side, side * 3)]
    milliseconds, size = _measure_preparation(loaded, sizes[1])
    return ModelCheck(
        type(loaded.model).__name__,
        weight_bytes(loaded.model, None),
        dict(zip(sizes, loaded.picture_tokens(sizes), strict=True)),
        milliseconds,
        size,
        _alike(loaded),
        _why_not_captured(loaded),
        _token_bytes(loaded),
    )


def _measure_preparation(loaded: LoadedVlm, size: tuple[int, int]) -> tuple[float, int]:
    """Return the CPU milliseconds and the bytes of the inputs of one picture, of a batch of eight."""
    shown: list[Any] = [noise(*size)] * 8
    prompts: list[str] = [EXAMPLE_PROMPTS[0]] * 8
    loaded.prepare(shown, prompts)
    started = time.process_time()
    ready = loaded.prepare(shown, prompts)
    return 1000 * (time.process_time() - started) / 8, held_bytes([part.inputs for part in ready.parts]) // 8


def _alike(loaded: LoadedVlm) -> int:
    """Count the rows that are answered in a batch as they are one by one."""
    shown: list[Any] = [noise(*size) for size in EXAMPLE_SIZES]
    prompts: list[str] = list(EXAMPLE_PROMPTS)
    many = loaded.answer(loaded.prepare(shown, prompts), TOKENS)
    rows = zip(shown, prompts, strict=True)
    alone = [loaded.answer(loaded.prepare([picture], [prompt]), TOKENS)[0] for picture, prompt in rows]
    return sum(one.text == other.text for one, other in zip(alone, many, strict=True))


def _why_not_captured(loaded: LoadedVlm) -> str:
    """Try captured decoding, step by step where there is no GPU."""
    if why := why_not_capturable(loaded.model):
        return why
    decoder = Decoder(loaded.model, [], loaded.answerer.pad)
    try:
        with exact_inference():
            return why_not_captured(loaded.model, loaded.placed(loaded.example()), decoder.generate)
    except Exception as error:
        return first_line(error)
    finally:
        decoder.release()


def _token_bytes(loaded: LoadedVlm) -> int:
    """Return the bytes that the keys and values of one token take; 0 for a model that keeps others."""
    inputs = loaded.placed(loaded.example())
    rows, length = inputs["input_ids"].shape
    try:
        with torch.inference_mode():
            cache: Any = loaded.model(**inputs, use_cache=True, return_dict=True).past_key_values
        return sum(held_bytes([layer.keys, layer.values]) for layer in cache.layers) // (rows * length)
    except (AttributeError, TypeError, ValueError):
        return 0
