"""Benchmark a GPU's ceilings, and CLIP ViT-L-14: the model alone by batch size, and from JPEG bytes by feeders."""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infra.bench.gpu_models import number_format
from infra.bench.gpu_row import Seen
from infra.bench.gpu_shapes import PHOTO_WIDTHS, VIT_L_14, Tower
from infra.bench.gpu_timing import ceilings, device, median
from infra.bench.photographs import photographs

TOY = Tower(2, 32, 2, 64, 32, 8)
# The tower of EVA02-E-14-plus, 4.35B.
EVA = Tower(64, 1792, 16, 15360, 224, 14)
EVA_BATCHES, EVA_PICTURES = (32, 64, 128, 256), 2048
BATCHES = (64, 128, 256, 512, 1024)
# Number of feeders to pictures and rounds, some five seconds each at 250 pictures a second and feeder. The last two
# reach the model's rate: a feeder takes half a second for their first batch, 3 % of a run of this length.
RUNS = {0: (1024, 3), 1: (1024, 3), 2: (2048, 3), 4: (8192, 3), 8: (32768, 1), 15: (32768, 1)}
DISTINCT = 256


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure what ``argument`` names: the ceilings, the model alone, or the whole stage."""
    return {"ceilings": _ceilings, "model": _model, "stage": _stage, "eva": _eva}[argument](size)


def _ceilings(size: str) -> Iterator[Seen]:
    """Yield the GPU's best rates of products and copies."""
    card = ceilings(size)
    yield Seen("bf16 products", "TFLOP/s", card.bf16 / 1e12)
    yield Seen("fp32 products", "TFLOP/s", card.fp32 / 1e12)
    yield Seen("copies", "TB/s", card.bandwidth / 1e12)


def _model(size: str) -> Iterator[Seen]:
    """Yield the model's rates by batch size, the best batch first."""
    with tempfile.TemporaryDirectory() as folder:
        clip, tower, name = model_of(size, Path(folder))
    bound = ceilings(size).bf16 / tower.flops
    rates = {batch: alone(clip, tower.side, batch) for batch in _batches(size)}
    best = max(rates, key=rates.__getitem__)
    yield Seen("ViT-L-14 alone, its best batch", "img/s", rates[best], bound, f"{name}, batches of {best}")
    for batch, rate in rates.items():
        yield Seen(f"ViT-L-14 alone, batches of {batch}", "img/s", rate, bound)


def _stage(size: str) -> Iterator[Seen]:
    """Measure the stage from JPEG bytes for each number of feeders; the model alone is measured before and after."""
    if not find_spec("simplejpeg"):
        for what, unit in (("ViT-L-14 from JPEG bytes", "img/s"), ("stage / model", "of 1")):
            yield Seen(what, unit, None, note="not measured: simplejpeg is absent")
        return
    with tempfile.TemporaryDirectory() as folder:
        clip, tower, name = model_of(size, Path(folder))
    rates = {batch: alone(clip, tower.side, batch) for batch in _batches(size)}
    # The smallest batch within 2 % of the best rate: a feeder holds a whole batch, and the device waits for the first.
    batch = min(batch for batch, rate in rates.items() if rate >= 0.98 * max(rates.values()))
    made = pictures(DISTINCT if size == "real" else 16)
    model = [alone(clip, tower.side, batch)]
    by_feeders: dict[int, float] = {}
    for feeders, (many, rounds) in RUNS.items():
        pieces = _pieces(made, many if size == "real" else 32, batch)
        by_feeders[feeders] = fed(clip, tower.side, feeders, pieces, rounds)
        yield Seen(f"ViT-L-14 from JPEG bytes, {feeders} feeders", "img/s", by_feeders[feeders], model[0])
    model.append(alone(clip, tower.side, batch))
    best, whole = max(by_feeders.values()), statistics.mean(model)
    told = f"{name}, batches of {batch}, the model alone {whole:.0f} in the same run"
    yield Seen("ViT-L-14 from JPEG bytes", "img/s", best, whole, told)
    yield Seen("stage / model", "of 1", best / whole)


def _eva(size: str) -> Iterator[Seen]:
    """Measure a tower of EVA02-E-14-plus's shape, alone at its best batch and from JPEG bytes."""
    tower, batches = (EVA, EVA_BATCHES) if size == "real" else (TOY, (2, 4))
    clip = BareTower(tower)
    bound = ceilings(size).bf16 / tower.flops
    rates = {batch: alone(clip, tower.side, batch) for batch in batches}
    best = max(rates, key=rates.__getitem__)
    yield Seen("EVA02-E-14-plus alone, its best batch", "img/s", rates[best], bound, f"batches of {best}")
    if not find_spec("simplejpeg"):
        yield Seen("EVA02-E-14-plus from JPEG bytes", "img/s", None, note="not measured: simplejpeg is absent")
        return
    made = pictures(DISTINCT if size == "real" else 16)
    rate = fed(clip, tower.side, 8, _pieces(made, EVA_PICTURES if size == "real" else 32, best), 1)
    yield Seen("EVA02-E-14-plus from JPEG bytes", "img/s", rate, bound, f"8 feeders, batches of {best}")


def fed(clip: Any, side: int, feeders: int, pieces: list[list[bytes]], rounds: int) -> float:
    """Return the pictures a second of an engine with ``feeders``, median of its rounds."""
    from pairmill.ops.models.device.engine import Engine

    engine = Engine(FromBytes(clip, side), feeders)
    engine.run(pieces[: feeders + 2])
    rate = sum(map(len, pieces)) / median(lambda: engine.run(pieces), rounds)
    engine.close()
    return rate


class FromBytes:
    """Engine job that decodes JPEG bytes, embeds them and copies the vectors back."""

    def __init__(self, clip: Any, side: int) -> None:
        from pairmill.ops.image.decode import Decode

        self.clip, self.decode = clip, Decode(side=side)

    def prepare(self, piece: list[bytes]) -> Any:
        """Decode and stack a batch on the CPU."""
        return self.clip.prepare_images([self.decode(data) for data in piece])

    def infer(self, ready: Any) -> Any:
        """Start embedding a batch on the device."""
        return self.clip.infer_images(ready)

    def fetch(self, running: Any) -> np.ndarray:
        """Copy the vectors of a batch to the CPU."""
        return self.clip.fetch(running)


class OpenClip:
    """The pipeline's own CLIP, with the three methods of an engine job."""

    def __init__(self, spec: str) -> None:
        from pairmill.ops.models.clip.clip_loaded import load

        self.loaded = load(spec, "bf16" if device().type == "cuda" else "fp32")

    def prepare_images(self, pictures: list[np.ndarray]) -> torch.Tensor:
        """Resize and stack pictures, in pinned memory if there is a GPU."""
        return pinned(torch.stack([self.loaded.fit(picture) for picture in pictures]))

    def infer_images(self, images: torch.Tensor) -> torch.Tensor:
        """Start embedding a batch on the device."""
        return self.loaded.embed_images(images)

    def fetch(self, vectors: torch.Tensor) -> np.ndarray:
        """Copy vectors to the CPU."""
        return vectors.cpu().numpy()


class BareTower:
    """Transformers' image tower of CLIP's shape with the same three methods, for machines without open_clip."""

    def __init__(self, tower: Tower) -> None:
        from transformers import CLIPVisionConfig, CLIPVisionModel

        config = CLIPVisionConfig(
            hidden_size=tower.width, intermediate_size=tower.mlp, num_hidden_layers=tower.layers,
            num_attention_heads=tower.heads, image_size=tower.side, patch_size=tower.patch,
        )  # fmt: skip
        self.side, self.device = tower.side, device()
        with torch.device(self.device):
            model: Any = CLIPVisionModel(config)
        self.model = model.to(number_format(self.device)).eval()

    def prepare_images(self, pictures: list[np.ndarray]) -> torch.Tensor:
        """Crop and stack pictures, in pinned memory if there is a GPU."""
        cut = [np.ascontiguousarray(picture[: self.side, : self.side].transpose(2, 0, 1)) for picture in pictures]
        return pinned(torch.from_numpy(np.stack(cut)))

    def infer_images(self, images: torch.Tensor) -> torch.Tensor:
        """Start embedding a batch on the device."""
        with torch.inference_mode():
            scaled = images.to(self.device, non_blocking=True).to(self.model.dtype) / 127.5 - 1
            return self.model(scaled).pooler_output.float()

    def fetch(self, vectors: torch.Tensor) -> np.ndarray:
        """Copy vectors to the CPU."""
        return vectors.cpu().numpy()


def model_of(size: str, folder: Path) -> tuple[Any, Tower, str]:
    """Load the CLIP to measure: the pipeline's own if open_clip is installed, else a bare tower of its shape."""
    if not find_spec("open_clip"):
        tower = VIT_L_14 if size == "real" else TOY
        return BareTower(tower), tower, "CLIPVisionModel of transformers (open_clip is absent)"
    from infra.bench.clip import random_model

    name, tower = ("ViT-L-14", VIT_L_14) if size == "real" else ("ViT-S-32", Tower(12, 384, 6, 1536, 224, 32))
    return OpenClip(random_model(folder, name)), tower, name


def pinned(images: torch.Tensor) -> torch.Tensor:
    """Pin a tensor in memory if there is a GPU, which can then copy it while it computes."""
    return images.pin_memory() if device().type == "cuda" else images


def alone(clip: Any, side: int, batch: int) -> float:
    """Return the pictures a second of the model on batches already on the device, median of three rounds."""
    made = torch.randint(0, 255, (batch, 3, side, side), dtype=torch.uint8).to(device())
    batches = 2 * BATCHES[-1] // batch if device().type == "cuda" else 1

    def work() -> None:
        for _ in range(batches):
            clip.infer_images(made)

    work()
    return batches * batch / median(work)


def pictures(n: int) -> list[bytes]:
    """Make ``n`` JPEGs of web size, from noise at several scales."""
    return photographs(argparse.Namespace(photos=None, pictures=n), PHOTO_WIDTHS)


def _pieces(made: list[bytes], n: int, batch: int) -> list[list[bytes]]:
    many = [made[place % len(made)] for place in range(n)]
    return [many[start : start + batch] for start in range(0, n, batch)]


def _batches(size: str) -> tuple[int, ...]:
    return BATCHES if size == "real" else (2, 4)
