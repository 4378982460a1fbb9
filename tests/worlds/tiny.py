"""Random models of a few thousand weights, saved in the format of real ones and loaded by the same code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

VISION = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}


def fill(model: torch.nn.Module, spread: float) -> None:
    """Set the weights from numpy's generator; weights of norms are near 1.

    Unlike torch's, it gives the same numbers in every version.
    """
    rng = np.random.default_rng(7)
    for name, parameter in sorted(model.named_parameters()):
        values = torch.from_numpy(rng.normal(scale=spread, size=tuple(parameter.shape)).astype(np.float32))
        parameter.data.copy_(1 + values if parameter.ndim == 1 and name.endswith("weight") else values)


def save_clip(
    folder: Path, text: dict[str, Any] | None = None, preprocess: dict[str, Any] | None = None, **extra
) -> str:
    """Save a random CLIP under ``folder``; return its spec. ``text`` and ``extra`` change the architecture."""
    import open_clip

    config = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT | (text or {}), **extra}
    arguments = {name: value for name, value in config.items() if name != "custom_text"}
    model = (open_clip.CustomTextCLIP if extra.get("custom_text") else open_clip.CLIP)(**arguments)
    fill(model, 0.2)
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(weights, folder / "open_clip_model.safetensors")
    settings = {"model_cfg": config, "preprocess_cfg": preprocess or {}}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    return f"open_clip:local-dir:{folder}"
