"""Benchmark captioning by Pairmill's own loop: pictures a second of a model of real shape, whole and by its parts."""

from __future__ import annotations

import time
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from infra.bench.gpu_clip import pictures
from infra.bench.gpu_models import fitting_batches, random_vlm
from infra.bench.gpu_row import Seen
from infra.bench.gpu_shapes import Vlm, shape_of
from infra.bench.gpu_texts import END, PAD, processor, sentences
from infra.bench.gpu_timing import (
    Ceilings,
    ceilings,
    decode_bound,
    device,
    median,
    prefill_bound,
    seconds,
)

FEEDERS = 8
STAGE_BATCHES = 3


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure the model ``argument`` as a whole, by its parts, and from JPEG bytes.

    Raises:
        AssertionError: An answer had another length than the shape's.
    """
    shape = shape_of(argument, size)
    card = ceilings(size)
    loaded = load(shape)
    rows = fitting_batches(shape)[-1]
    prompts = sentences(rows, shape.prompt, shape.decoder.vocabulary)
    shown = pixels(rows, shape)
    yield Seen("prepared by one feeder", "img/s", rows / median(lambda: loaded.prepare(shown, prompts)))
    ready = loaded.prepare(shown, prompts)
    counts: set[int] = set()

    def answer() -> None:
        counts.update(found.n_tokens for found in loaded.infer(ready, shape.answer))

    first, whole = seconds(answer), median(answer)
    if counts != {shape.answer}:
        raise AssertionError(f"answers of {sorted(counts)} tokens, where each must have {shape.answer}")
    yield Seen("first batch, compiling included, beyond another", "s", first - whole)
    yield from parts(shape, card, rows, whole, prefill_seconds(loaded, ready), _way(loaded))
    yield vision(loaded.model, shape, card, rows)
    yield from _stage(loaded, shape, rows, prompts, rows / whole)


def load(shape: Vlm) -> Any:
    """Build the model with the captioning code; on a CPU, use the decoding steps that a GPU would capture."""
    from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
    from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm

    patch = shape.tower.patch * shape.tower.merge
    shown = processor(shape.tower.side, patch, shape.decoder.vocabulary)
    loaded = LoadedVlm(random_vlm(shape, device()), shown, spec=repr(shape))  # by which a trial's outcome is cached
    if device().type == "cpu":
        loaded.answerer.decoder = Decoder(loaded.model, [END], PAD)
    return loaded


def _way(loaded: Any) -> str:
    """Describe the decoding loop that ran: models that cannot be captured use transformers' own `generate`."""
    return "transformers' own generate" if loaded.answerer.decoder is None else "steps over fixed buffers"


def pixels(rows: int, shape: Vlm) -> list[np.ndarray]:
    """Make pictures as `Decode` returns them: the shorter side is the side that the model sees."""
    rng = np.random.default_rng(0)
    side = shape.tower.side
    return [rng.integers(0, 256, (side, side * 4 // 3, 3), np.uint8) for _ in range(rows)]


def prefill_seconds(loaded: Any, ready: Any) -> float:
    """Return the seconds of a batch until its first tokens; a first call compiles for answers of one token."""
    loaded.infer(ready, 1)
    return median(lambda: loaded.infer(ready, 1))


def parts(shape: Vlm, card: Ceilings, rows: int, whole: float, prefill: float, way: str) -> Iterator[Seen]:
    """Yield the rates of a batch of ``rows``: captions, tokens, and prefill and decoding beside their bounds."""
    bounds = prefill_bound(shape, rows, card), decode_bound(shape, rows, card)
    yield Seen("captions", "img/s", rows / whole, rows / sum(bounds), f"batches of {rows}, {way}, {card.note()}")
    yield Seen("tokens of captions", "tokens/s", rows * shape.answer / whole, rows * shape.answer / sum(bounds))
    yield Seen("prefilled, tower included", "img/s", rows / prefill, rows / bounds[0])
    yield decoded("decoded", shape, rows, whole - prefill, bounds[1])


def decoded(what: str, shape: Vlm, rows: int, seconds: float, bound: float) -> Seen:
    """Yield the rate of all tokens but the first. At toy size their time can be smaller than the prefill's spread."""
    tokens = rows * (shape.answer - 1)
    if seconds <= 0:
        return Seen(what, "tokens/s", None, note="too short: less than the prefill's own spread")
    return Seen(what, "tokens/s", tokens / seconds, tokens / bound)


def vision(model: Any, shape: Vlm, card: Ceilings, rows: int) -> Seen:
    """Time the tower and its projector alone, as transformers runs them."""
    side = shape.tower.side
    shown = torch.randn(rows, 3, side, side, device=model.device, dtype=model.dtype)

    def work() -> None:
        with torch.inference_mode():
            model.model.get_image_features(pixel_values=shown, vision_feature_layer=-1)

    work()
    return Seen("tower alone, not compiled", "img/s", rows / median(work), card.bf16 / shape.tower.flops)


def _stage(loaded: Any, shape: Vlm, rows: int, prompts: list[str], model: float) -> Iterator[Seen]:
    """Time whole batches from JPEG bytes to texts, through the engine.

    The first batch is left out: it waits for its feeder, as the first batch of any work item would if no other item
    were in flight.
    """
    what = ("captions from JPEG bytes", "from JPEG bytes / model")
    if not find_spec("simplejpeg"):
        yield from (Seen(name, "", None, note="not measured: simplejpeg is absent") for name in what)
        return
    from pairmill.ops.models.device.engine import Engine

    made = pictures(rows)
    halves = FromBytes(loaded, prompts, shape)
    engine = Engine(halves, FEEDERS)
    engine.run([made] * STAGE_BATCHES)
    engine.close()
    rate = (STAGE_BATCHES - 1) * rows / (halves.done[-1] - halves.done[0])
    yield Seen(what[0], "img/s", rate, model, f"{FEEDERS} feeders, {STAGE_BATCHES} batches, the first one's feed apart")
    yield Seen(what[1], "of 1", rate / model)


class FromBytes:
    """Engine job that decodes and prepares JPEG bytes, then captions them."""

    def __init__(self, loaded: Any, prompts: list[str], shape: Vlm) -> None:
        from pairmill.ops.image.decode import Decode

        self.loaded, self.prompts, self.shape = loaded, prompts, shape
        self.decode = Decode(side=shape.tower.side)
        self.done: list[float] = []  # time at which each batch was answered

    def prepare(self, piece: list[bytes]) -> Any:
        """Decode and prepare a batch on the CPU."""
        return self.loaded.prepare([self.decode(data) for data in piece], self.prompts)

    def infer(self, ready: Any) -> Any:
        """Caption a batch, and note the time."""
        answers = self.loaded.infer(ready, self.shape.answer)
        self.done.append(time.perf_counter())  # not in fetch, which runs after the next batch was answered
        return answers

    def fetch(self, running: Any) -> Any:
        """Return the answers, which are on the CPU already."""
        return running
