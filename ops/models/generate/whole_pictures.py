"""Let SmolVLM prefill without waiting for the device, Idefics3 with one wait: the host knows what they read from it.

Transformers looks for pictures that are padding, for padded pixels, and counts image tokens. Each look waits for all
that the device was given before, and between looks the device waits for Python.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# An attention function for which transformers makes no mask.
WHOLE = "pairmill_whole"


@contextmanager
def whole_pictures(model: Any, given: dict[str, Any]) -> Iterator[None]:
    """Let a model see all pictures of ``given`` (inputs on the CPU) whole during the body, if they have no padding.

    Does nothing for other pictures and other models.
    """
    seer: Any = getattr(model, "model", None)
    if not _are_whole(seer, given):
        yield
        return
    config, own = seer.vision_model.config, dict[str, Any]()
    own["get_image_features"] = lambda pixels, *_, **__: _features(seer, pixels)
    if hasattr(seer, "get_placeholder_mask"):
        own["get_placeholder_mask"] = lambda ids, **_: (ids == seer.config.image_token_id)[..., None]
    ALL_ATTENTION_FUNCTIONS.register(WHOLE, sdpa_attention_forward)
    vars(seer).update(own)
    config._attn_implementation = WHOLE
    try:
        yield
    finally:
        config._attn_implementation = "sdpa"
        for name in own:
            del vars(seer)[name]


def _are_whole(seer: Any, given: dict[str, Any]) -> bool:
    """Return whether each row has as many image tokens as its pictures (n, pictures, 3, h, w) make without padding."""
    pixels = given.get("pixel_values")
    if pixels is None or pixels.ndim != 5 or "pixel_attention_mask" in given:
        return False
    if not all(hasattr(seer, name) for name in ("vision_model", "connector", "image_seq_len", "get_image_features")):
        return False
    if len(signature(seer.connector.forward).parameters) > 1:  # Idefics2's takes the mask of the patches too
        return False
    patch = seer.config.vision_config.patch_size
    patches = pixels.shape[3] // patch * (pixels.shape[4] // patch)
    if patches != seer.image_seq_len * seer.config.scale_factor**2:
        return False
    signs = (given["input_ids"] == seer.config.image_token_id).sum(1)
    is_full = bool((signs == pixels.shape[1] * seer.image_seq_len).all())
    return is_full and seer.vision_model.config._attn_implementation == "sdpa"


def _features(seer: Any, pixels: torch.Tensor) -> Any:
    """Return the output of the tower, with the features of all pictures (tokens, width) as a list of one tensor."""
    pixels = pixels.flatten(0, 1).to(seer.dtype)
    patch = seer.config.vision_config.patch_size
    grid = (len(pixels), pixels.shape[2] // patch, pixels.shape[3] // patch)
    all_patches = torch.ones(grid, dtype=torch.bool, device=pixels.device)
    found = seer.vision_model(pixel_values=pixels, patch_attention_mask=all_patches, return_dict=True)
    found.pooler_output = [seer.connector(found.last_hidden_state).flatten(0, 1)]
    return found
