"""Let a vision tower attend to all its windows in one call, instead of one call a window and layer.

Towers of pictures of any size (Qwen-VL, GLM-4V, Pixtral) attend within windows or within pictures. For every attention
function but flash kernels, transformers splits the patches at their bounds, or masks them: 25 pictures of 448 px took
Qwen2.5-VL's tower 22,500 calls, between which a GPU waits for Python. torch's own flash kernel takes the bounds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

# Transformers passes bounds to the attention functions whose names contain "flash".
NAME = "pairmill_flash"


def pack_windows(model: Any) -> bool:
    """Let the vision tower of a transformers model attend in one call; return whether it has bounds to attend within.

    The kernel runs on GPUs alone, in half precision: a trial must follow. A torch without it changes nothing.
    """
    config = _vision_config(model)
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: F401
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    except ImportError:
        return False
    if config is None:
        return False
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    config._attn_implementation = NAME
    return True


@contextmanager
def windows_apart(model: Any) -> Iterator[None]:
    """Let the vision tower attend as transformers does during the body."""
    config = _vision_config(model)
    before = getattr(config, "_attn_implementation", None)
    if before == NAME:
        unpack_windows(model)
    try:
        yield
    finally:
        if before == NAME:
            pack_windows(model)


def unpack_windows(model: Any) -> None:
    """Let the vision tower attend window by window, by torch's own function (sdpa)."""
    if (config := _vision_config(model)) is not None:
        config._attn_implementation = "sdpa"


def _vision_config(model: Any) -> Any:
    """Return the config of a tower that passes bounds to flash kernels and uses torch's own attention; else None."""
    config = getattr(model.config, "vision_config", None)
    tower = next((part for part in model.modules() if getattr(part, "config", model) is config), None)
    passes = hasattr(sys.modules[type(tower).__module__], "is_flash_attention_requested")
    return config if config is not None and passes and config._attn_implementation in ("sdpa", NAME) else None


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    scaling: float,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend within the bounds ``cu_seq_lens_q`` (windows + 1,), in one call.

    The inputs are (1, heads, patches, width), the output is (1, patches, heads, width).
    """
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    bounds = cu_seq_lens_q.to(torch.int32)
    found: Any = varlen_attn(query, key, value, bounds, bounds, max_length_q, max_length_q, scale=scaling)
    return found[None], None
