"""Make a loaded model's forward pass quicker on a GPU, without a change to what it computes but rounding."""

from __future__ import annotations

import warnings
from typing import Any

import torch

# Between the products of matrices a layer reads and writes its state some ten times; these are where.
PARTS = ("RMSNorm", "MLP")


def compile_parts(model: Any) -> None:
    """Compile the norms and feed-forward parts of decoder and tower, and let one query's heads share keys unrepeated.

    Parts, because whole models break where they look at their numbers, and compile anew for each layer of a cache.
    Where nothing compiles (no C compiler, say) a warning says so, and the parts stay as they are.
    """
    share_keys(model)
    try:
        torch.compile(_plus_one)(torch.ones(8, device=model.device))
    except Exception as error:  # whatever the tool chain lacks
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        warnings.warn(f"torch.compile does not work here, generation is slower for it: {reason}", stacklevel=2)
        return
    for part in model.modules():
        if type(part).__name__.endswith(PARTS):
            part.compile(dynamic=True)


def _plus_one(numbers: torch.Tensor) -> torch.Tensor:
    return numbers + 1


def share_keys(model: Any) -> None:
    """Have the decoder attend by `grouped_attention`, where it would by torch's own kernels."""
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
    """Attend with one query a row (n, heads, 1, width) to keys of fewer heads; return (n, 1, heads, width).

    The heads that share a key stand as queries of it. Repeated for each head, as transformers 5.17 does, the keys of
    Qwen2.5-7B are written and read seven times over for each token.
    """
    n, heads, _, width = query.shape
    grouped = query.reshape(n, key.shape[1], heads // key.shape[1], width)
    found = torch.nn.functional.scaled_dot_product_attention(grouped, key, value, attn_mask=mask, scale=scaling)
    return found.reshape(n, 1, heads, value.shape[-1])
