"""Test a real GPU that runs out of memory or whose context breaks, and how far repeated results agree.

On a CPU the first two are rehearsed: the same kind of error is raised at the same place as CUDA would.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infra.bench.gpu_caption import load, pixels
from infra.bench.gpu_clip import model_of
from infra.bench.gpu_models import row_bytes
from infra.bench.gpu_row import Seen
from infra.bench.gpu_shapes import Vlm, shape_of
from infra.bench.gpu_texts import sentences
from infra.bench.gpu_timing import device

ANSWER = 8  # tokens, few since these rows do not measure speed
MODEL = "7b"
PICTURES = 512
CAPTIONS = 64


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure what ``argument`` names: running out of memory, a broken context, or repeats."""
    return {"memory": _memory, "broken": _broken, "repeat": _repeat}[argument](size)


def _memory(size: str) -> Iterator[Seen]:
    """Leave memory for a third of a batch, then for none beside the weights."""
    shape = shape_of(MODEL, size)
    loaded = load(shape)
    rows = shape.batches[-1]
    for room, many, what, error in (
        (rows // 3, rows, "rows answered of a batch that does not fit", ""),
        (0, 2, "rows with the error out_of_memory where none fits", "out_of_memory"),
    ):
        ready = loaded.prepare(pixels(many, shape), sentences(many, shape.prompt, shape.decoder.vocabulary))
        told = _leave_room(loaded, shape, room)
        answers = loaded.infer(ready, ANSWER)
        yield Seen(what, "of 1", sum(answer.error == error for answer in answers) / many, note=f"{many} rows, {told}")


def _leave_room(loaded: Any, shape: Vlm, rows: int) -> str:
    """Limit memory to the weights and ``rows`` rows; on a CPU, refuse batches of more rows."""
    if device().type == "cuda":
        if loaded.answerer.decoder is not None:
            loaded.answerer.decoder.release()
        torch.cuda.empty_cache()
        most = torch.cuda.memory_reserved() + rows * row_bytes(shape) + (4 << 20)  # below torch's smallest allocation
        torch.cuda.set_per_process_memory_fraction(most / torch.cuda.mem_get_info()[1])
        return f"{most / 1e9:.3g} GB of memory"

    def refuse(module: Any, arguments: Any, named: dict[str, Any]) -> None:
        if len(named["input_ids"]) > rows:
            raise torch.OutOfMemoryError("rehearsed")

    loaded.model.model.register_forward_pre_hook(refuse, with_kwargs=True)
    return f"rehearsed: room for {rows} rows"


def _broken(size: str) -> Iterator[Seen]:
    """Break the device by a device-side assert, and test that the engine raises BrokenDevice."""
    from pairmill.ops.models.device.engine import BrokenDevice, Engine

    engine = Engine(Asserts(), 1)
    try:
        engine.run([8, 0, 8])
        note, raised = "nothing raised", 0.0
    except BrokenDevice as error:
        note, raised = str(error).splitlines()[0], 1.0
    yield Seen("BrokenDevice raised after a device-side assert", "of 1", raised, note=note)


class Asserts:
    """Engine job that reads element 4 of a tensor whose length is the piece: out of bounds for an empty one."""

    def prepare(self, piece: int) -> int:
        """Return the piece unchanged: the length of the tensor."""
        return piece

    def infer(self, ready: int) -> torch.Tensor:
        """Read element 4 on the device; on a CPU, raise CUDA's error if the piece is 0."""
        if device().type == "cpu" and ready == 0:
            raise torch.AcceleratorError("CUDA error: device-side assert triggered")
        return torch.zeros(max(ready, 1), device=device())[torch.full((1,), 4, device=device())]

    def fetch(self, running: torch.Tensor) -> float:
        """Copy the element to the CPU."""
        return float(running.cpu())


def _repeat(size: str) -> Iterator[Seen]:
    """Repeat embeddings and captions at another batch size, and yield how far the results agree."""
    yield from _repeat_vectors(size)
    shape = shape_of(MODEL, size)
    loaded = load(shape)
    rows = CAPTIONS if size == "real" else 4
    shown, prompts = pixels(rows, shape), sentences(rows, shape.prompt, shape.decoder.vocabulary)
    texts = [
        [
            answer.text
            for start in range(0, rows, batch)
            for answer in loaded.infer(
                loaded.prepare(shown[start : start + batch], prompts[start : start + batch]), shape.answer
            )
        ]
        for batch in (rows, rows // 2)
    ]
    equal = sum(one == other for one, other in zip(*texts, strict=True)) / rows
    note = f"{rows} rows at once and in halves; random weights, whose next words are near ties more often than trained"
    yield Seen("equal captions of a repeat at another batch", "of 1", equal, note=note)


def _repeat_vectors(size: str) -> Iterator[Seen]:
    """Embed pictures at two batch sizes; yield the smallest cosine, and whether scores agree within 1e-3."""
    with tempfile.TemporaryDirectory() as folder:
        clip, tower, name = model_of(size, Path(folder))
    rng = np.random.default_rng(0)
    many = PICTURES if size == "real" else 8
    shown = [rng.integers(0, 256, (tower.side, tower.side, 3), np.uint8) for _ in range(many)]
    first, again = (_vectors(clip, shown, batch) for batch in (many, many // 8))
    # A score is a cosine of two vectors; take each picture and the one before it.
    scores = [(vectors * np.roll(vectors, 1, axis=0)).sum(1) for vectors in (first, again)]
    moved = float(np.abs(scores[0] - scores[1]).max())
    note = f"{many} pictures, batches of {many} and {many // 8}, {name}"
    yield Seen("smallest cosine of a repeat at another batch", "cosine", float((first * again).sum(1).min()), note=note)
    yield Seen("largest difference of scalars is within 1e-3", "of 1", float(moved <= 1e-3), note=f"{moved:.2g}")


def _vectors(clip: Any, shown: list[np.ndarray], batch: int) -> np.ndarray:
    """Embed pictures in batches; return unit vectors in float64."""
    parts = [
        clip.fetch(clip.infer_images(clip.prepare_images(shown[start : start + batch])))
        for start in range(0, len(shown), batch)
    ]
    vectors = np.concatenate(parts).astype(np.float64)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
