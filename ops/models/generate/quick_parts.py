"""Speed up a loaded model's forward pass on a GPU; results change by rounding only.

`whole_pictures` lets SmolVLM prefill without waiting for the device, Idefics3 with one wait: the host knows what they
read from it. Transformers looks for pictures that are padding, for padded pixels, and counts image tokens. Each look
waits for all that the device was given before, and between looks the device waits for Python.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getsource, signature
from typing import Any

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from pairmill.ops.models.device.failures import first_line
from pairmill.ops.models.device.run_notes import note

# Class-name endings of the parts to compile. Between matrix products they read and write the state ten times.
PARTS = ("RMSNorm", "MLP")
# Transformers passes the bounds of windows to the attention functions whose names contain "flash".
PACKED = "pairmill_flash"


def compile_parts(model: Any) -> None:
    """Speed up a model: compile its norms and feed-forward parts, make patches contiguous, share keys among heads.

    Only parts are compiled: whole models have graph breaks where they read tensor values, and recompile for each layer
    of a cache. If nothing compiles (no C compiler, for example), note it and leave the parts as they are.
    """
    share_keys(model)
    lay_out_patches(model)
    try:
        torch.compile(lambda numbers: numbers + 1)(torch.ones(8, device=model.device))  # the smallest trial
    except Exception as error:  # anything missing in the tool chain
        note(f"torch.compile does not work here, generation is slower for it: {first_line(error)}")
        return
    for part in model.modules():
        if type(part).__name__.endswith(PARTS):
            part.compile(dynamic=True)


def lay_out_patches(model: Any) -> None:
    """Make the patches of a vision tower contiguous in memory for its layers; results are bit-equal.

    The convolution that computes the patches puts channels first. Transformers only swaps the strides, and torch keeps
    them from layer to layer: SmolVLM2's residual additions and the copies that its norms need took 16 of the 70 ms of a
    prefill of 25 pictures on an H200, where contiguous ones read and write 2 ms' worth of memory.
    """
    for part in model.modules():
        if type(part).__name__.endswith("VisionEmbeddings"):
            part.register_forward_hook(lambda _, __, made: made.contiguous() if torch.is_tensor(made) else made)


def share_keys(model: Any) -> None:
    """Make a decoder that uses torch's own attention kernels (sdpa) use `grouped_attention` for single-token steps.

    Where it is given bounds in place of a mask, it uses `attend_within`.
    """

    def attend(
        module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attention_mask: Any, **how: Any
    ) -> tuple[torch.Tensor, None]:
        if attention_mask is not None and attention_mask.dtype == torch.int32:
            return attend_within(query, key, value, attention_mask, how.get("scaling")), None
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


def takes_lengths(model: Any) -> bool:
    """Return whether a decoder uses `share_keys`, and torch has a kernel for `attend_within` (from 2.13 on, on GPUs).

    False for models whose prompts are not causal throughout (PaliGemma, Molmo2): `attend_within` would make them so.
    Whether the kernel takes the model's shapes and type, only a trial tells.
    """
    source = getsource(sys.modules[type(model).__module__])
    if "block_sequence_ids" in source or "or_mask_function" in source:
        return False
    shares = model.config.get_text_config(decoder=True)._attn_implementation == "pairmill"
    return shares and {"seqused_k", "enable_gqa", "window_size"} <= signature(_varlen_attn()).parameters.keys()


def _varlen_attn() -> Any:
    from torch.nn.attention.varlen import varlen_attn  # imports torch's compiler

    return varlen_attn


def attend_within(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bounds: torch.Tensor, scaling: float | None
) -> torch.Tensor:
    """Compute attention in one call of torch's flash kernel, so that each row reads its own columns only.

    ``bounds`` (int32) has four axes, because transformers passes a mask of four axes to its layers unchanged:

    - (1, 1, longest, rows + 1) for concatenated prompts: the offset of each prompt, and the end of the last one.
      Attention is causal.
    - (3, 1, 1, rows + 1) for one query per row: offsets of the queries, offsets of the rows' columns, and the number of
      columns with keys of each row (the last number is unused).

    Inputs are (n, heads, tokens, width), keys and values possibly with fewer heads; returns (n, tokens, heads, width).
    """
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (query, key, value))
    how: dict[str, Any] = {"scale": scaling, "enable_gqa": query.shape[1] != key.shape[1]}
    if len(bounds) == 1:
        starts, longest = bounds[0, 0, 0], bounds.shape[2]
        found: Any = _varlen_attn()(q, k, v, starts, starts, longest, longest, window_size=(-1, 0), **how)
    else:
        queries, columns, used = bounds[:, 0, 0]
        found = _varlen_attn()(q, k, v, queries, columns, 1, key.shape[2], seqused_k=used[:-1], **how)
    return found.reshape(len(query), query.shape[2], *found.shape[1:])


def pack_windows(model: Any) -> bool:
    """Let a vision tower attend to all windows in one call; return whether the tower has windows to attend within.

    Towers of pictures of any size (Qwen-VL, GLM-4V, Pixtral) attend within windows or within pictures. For every
    attention function but flash kernels, transformers splits the patches at their bounds, or masks them: 25 pictures of
    448 px took Qwen2.5-VL's tower 22,500 calls, between which a GPU waits for Python. torch's own flash kernel takes
    the bounds. It runs on GPUs alone, in half precision: a trial must follow.
    """
    if (config := _vision_config(model)) is None:
        return False
    ALL_ATTENTION_FUNCTIONS.register(PACKED, _attend)
    config._attn_implementation = PACKED
    return True


@contextmanager
def windows_apart(model: Any) -> Iterator[None]:
    """Use transformers' own attention, window by window, in the vision tower during the `with` block."""
    if (before := getattr(_vision_config(model), "_attn_implementation", None)) == PACKED:
        unpack_windows(model)
    try:
        yield
    finally:
        if before == PACKED:
            pack_windows(model)


def unpack_windows(model: Any) -> None:
    """Undo `pack_windows`: let the vision tower attend window by window, by torch's own function (sdpa)."""
    if (config := _vision_config(model)) is not None:
        config._attn_implementation = "sdpa"


def _vision_config(model: Any) -> Any:
    """Return the config of a tower that passes bounds to flash kernels and uses torch's own attention; else None."""
    config = getattr(model.config, "vision_config", None)
    tower = next((part for part in model.modules() if getattr(part, "config", model) is config), None)
    passes = hasattr(sys.modules[type(tower).__module__], "is_flash_attention_requested")
    return config if config is not None and passes and config._attn_implementation in ("sdpa", PACKED) else None


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
    """Attend within ``cu_seq_lens_q`` (windows + 1,): (1, heads, patches, width) to (1, patches, heads, width)."""
    query, key, value = (each[0].transpose(0, 1) for each in (query, key, value))
    bounds = cu_seq_lens_q.to(torch.int32)
    found: Any = _varlen_attn()(query, key, value, bounds, bounds, max_length_q, max_length_q, scale=scaling)
    return found[None], None


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
