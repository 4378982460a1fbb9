"""Speed up a loaded model's forward pass on a GPU; results change by rounding only."""

from __future__ import annotations

from typing import Any

import torch

from pairmill.ops.models.device.failures import first_line
from pairmill.ops.models.device.run_notes import note

# Class-name endings of the parts to compile. Between matrix products, a layer reads and writes its state some ten
# times, in these parts.
PARTS = ("RMSNorm", "MLP")


def compile_parts(model: Any) -> None:
    """Speed up a model: compile its norms and feed-forward parts, make patches contiguous, share keys among heads.

    Only parts are compiled: whole models have graph breaks where they read tensor values, and recompile for each layer
    of a cache. If nothing compiles (no C compiler, for example), note it and leave the parts as they are.
    """
    share_keys(model)
    lay_out_patches(model)
    try:
        torch.compile(_plus_one)(torch.ones(8, device=model.device))
    except Exception as error:  # anything missing in the tool chain
        note(f"torch.compile does not work here, generation is slower for it: {first_line(error)}")
        return
    for part in model.modules():
        if type(part).__name__.endswith(PARTS):
            part.compile(dynamic=True)


def _plus_one(numbers: torch.Tensor) -> torch.Tensor:
    """Add 1: the smallest function that shows whether torch.compile works."""
    return numbers + 1


def lay_out_patches(model: Any) -> None:
    """Give a tower's layers patches whose channels lie side by side; results are bit-equal.

    A convolution makes the patches with channels first. Transformers only swaps the strides, and torch keeps them from
    layer to layer: SmolVLM2's residual additions and the copies that its norms need took 16 of the 70 ms of a prefill
    of 25 pictures on an H200, where contiguous ones read and write 2 ms' worth of memory.
    """
    for part in model.modules():
        if type(part).__name__.endswith("VisionEmbeddings"):
            part.register_forward_hook(lambda _, __, made: made.contiguous() if torch.is_tensor(made) else made)


def share_keys(model: Any) -> None:
    """Make a decoder that uses torch's own attention kernels (sdpa) use `grouped_attention` for single-token steps."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    def attend(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **how: Any
    ) -> tuple[torch.Tensor, None]:
        if query.shape[2] > 1 or attention_mask is None or how.get("position_bias") is not None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **how)
        return grouped_attention(query, key, value, attention_mask, how.get("scaling")), None

    config = model.config.get_text_config(decoder=True)
    if config._attn_implementation != "sdpa":
        return
    ALL_ATTENTION_FUNCTIONS.register("pairmill", attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register("pairmill", sdpa_mask)
    config._attn_implementation = "pairmill"


def grouped_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Attend with one query per row (n, heads, 1, width) to keys of fewer heads; return (n, 1, heads, width).

    The heads that share a key become queries of that key. Transformers 5.17 repeats the keys for each head instead: the
    keys of Qwen2.5-7B are then written and read seven times per token.
    """
    n, heads, _, width = query.shape
    grouped = query.reshape(n, key.shape[1], heads // key.shape[1], width)
    found = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(n, 1, heads, value.shape[-1])
