"""A CLIP of open_clip: pictures and sentences to unit vectors of one space."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ops.models.device import device, dtype, exact_inference, text_batches
from ops.models.identity import ModelError, resolve, split_open_clip
from ops.models.text_tower import TextTower

# So many batches of sentences are tokenized together, then sorted by length: enough to bring like lengths together.
TEXT_BATCHES = 16


@dataclass(frozen=True)
class Clip:
    """Embed pictures and sentences with ``spec`` ('open_clip:MODEL/PRETRAINED' or 'open_clip:local-dir:FOLDER').

    Loaded on first use, once a process; pickled without weights. Vectors are float32, of length 1: cosine is the dot
    product. ``spec`` and ``precision`` ('fp32', 'bf16') are identity, ``batch_size`` is placement: it moves values by
    rounding only (below 1e-5 in fp32).
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 64
    version: int = 1

    @property
    def dimension(self) -> int:
        """Length of a vector. Loads the model."""
        return self._loaded.dimension

    @property
    def image_size(self) -> int:
        """Side in pixels that the image tower sees; decode to at least this. Loads the model."""
        return self._loaded.image_size

    @property
    def _loaded(self) -> _Loaded:
        return _load(self.spec, self.precision)

    def embed_images(self, pixels: list[np.ndarray]) -> np.ndarray:
        """Pictures (h, w, 3) uint8 RGB of any size, best with a shorter side of ``image_size``: (n, d) float32."""
        model = self._loaded
        found = []
        for start in range(0, len(pixels), self.batch_size):
            fitted = [model.fit(picture) for picture in pixels[start : start + self.batch_size]]
            found.append((list(range(start, start + len(fitted))), model.embed_images(torch.stack(fitted))))
        return model.gather(found, len(pixels))

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        """Sentences (n, d) float32, in the order given; what is longer than the model's context is cut at its end."""
        model = self._loaded
        found = []
        chunk = TEXT_BATCHES * self.batch_size
        for start in range(0, len(texts), chunk):
            tokens = model.tokenizer(texts[start : start + chunk])
            for rows in text_batches(model.text.ends(tokens).tolist(), self.batch_size):
                found.append(([start + row for row in rows], model.embed_tokens(tokens[rows])))
        return model.gather(found, len(texts))


class _Loaded:
    """The weights in this process, with the model's own way of fitting a picture."""

    def __init__(self, model: Any, tokenizer: Any, kind: torch.dtype) -> None:
        self.model, self.tokenizer, self.kind = model, tokenizer, kind
        self.text, self.device = TextTower(model), device()
        settings = model.visual.preprocess_cfg
        size = settings["size"]
        self.image_size = int(min(size) if isinstance(size, (list, tuple)) else size)
        self.resize_mode, self.interpolation = settings["resize_mode"], settings["interpolation"]
        self.fill = int(settings["fill_color"])
        # Division by 255 is folded in: one subtraction and one multiplication a pixel, on the device.
        self.mean = torch.tensor(settings["mean"], device=self.device).view(3, 1, 1) * 255
        self.scale = 1 / (torch.tensor(settings["std"], device=self.device).view(3, 1, 1) * 255)
        self.dimension = int(self.embed_tokens(tokenizer(["a"])).shape[1])

    def fit(self, picture: np.ndarray) -> torch.Tensor:
        """(h, w, 3) to (3, s, s) uint8: the model's resize ('shortest', 'longest', 'squash'), then crop or pad."""
        side, (height, width) = self.image_size, picture.shape[:2]
        if self.resize_mode == "squash":
            target = (side, side)
        else:
            # Rounded as open_clip rounds: down for 'shortest', to the nearest for 'longest'.
            against, whole = (min, int) if self.resize_mode == "shortest" else (max, round)
            against = against(height, width)
            target = (max(1, whole(side * height / against)), max(1, whole(side * width / against)))
        image = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)
        if target != (height, width):
            mode = self.interpolation if self.interpolation in ("bicubic", "bilinear") else "bicubic"
            image = F.interpolate(image[None], size=target, mode=mode, antialias=True, align_corners=False)[0]
        top, left = round((target[0] - side) / 2), round((target[1] - side) / 2)
        if min(target) < side:
            pad_y, pad_x = max(0, -top), max(0, -left)
            around = (pad_x, max(0, side - target[1] - pad_x), pad_y, max(0, side - target[0] - pad_y))
            image, top, left = F.pad(image, around, value=self.fill), max(0, top), max(0, left)
        return image[:, top : top + side, left : left + side]

    def embed_images(self, images: torch.Tensor) -> torch.Tensor:
        """(n, 3, s, s) uint8 to (n, d) float32 of length 1, on the device."""
        with exact_inference():
            scaled = (images.to(self.device, non_blocking=True).float() - self.mean) * self.scale
            return F.normalize(self.model.encode_image(scaled.to(self.kind)).float(), dim=-1)

    def embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """(n, context) token ids to (n, d) float32 of length 1, on the device."""
        with exact_inference():
            return F.normalize(self.text.encode(tokens).float(), dim=-1)

    def gather(self, found: list[tuple[list[int], torch.Tensor]], n: int) -> np.ndarray:
        """Batches of (rows, vectors) as one array. Only here is the device waited for: while it works on a batch, the
        next one is resized or tokenized."""
        vectors = np.zeros((n, self.dimension), dtype=np.float32)
        for rows, part in found:
            vectors[rows] = part.cpu().numpy()
        return vectors


@cache
def _load(spec: str, precision: str) -> _Loaded:
    kind = dtype(precision)
    name, pretrained = _open_clip_name(spec)
    import open_clip

    try:
        model = open_clip.create_model(name, pretrained, require_pretrained=True, pretrained_text=False)
        tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:  # a damaged checkpoint, a config of another model, a tokenizer that is not there
        raise ModelError(f"model '{spec}' does not load: {error}; check its config and weights") from error
    return _Loaded(model.to(device=device(), dtype=kind).eval(), tokenizer, kind)


def _open_clip_name(spec: str) -> tuple[str, str | None]:
    """(name, pretrained) as open_clip wants them, after the weights were found. Raises ModelError with the remedy."""
    if not spec.startswith("open_clip:"):
        raise ModelError(f"model '{spec}': a CLIP must be an open_clip model; write 'open_clip:MODEL/PRETRAINED'")
    path = resolve(spec)
    name = spec.removeprefix("open_clip:")
    if name.startswith("local-dir:"):
        return f"local-dir:{path}", None
    # A tag goes to open_clip as a tag: it carries the mean, the deviation and the way of resizing.
    return (name, None) if name.startswith("hf-hub:") else split_open_clip(spec)
