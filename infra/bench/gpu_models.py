"""Build random models of the shapes that the GPU benches run: they are as fast as trained ones.

Weights are created on the device, so that 33 GB need neither a download nor CPU memory.
"""

from __future__ import annotations

from typing import Any

import torch

from infra.bench.gpu_shapes import BF16, Vlm
from infra.bench.gpu_texts import END, IMAGE, PAD


def row_bytes(shape: Vlm) -> int:
    """Return the bytes of one row: keys and values twice (copied to the decoding buffers), and one layer's work."""
    held = 2 * (shape.context + shape.answer) * shape.decoder.kv_bytes
    if shape.tower.merge == 1:  # a LLaVA keeps the outputs of all tower layers
        held += BF16 * shape.tower.layers * shape.tower.patches * shape.tower.width
    return held + shape.context * 4 * BF16 * shape.decoder.mlp


def fitting_batches(shape: Vlm) -> list[int]:
    """Return the batch sizes of ``shape`` that should fit the GPU beside the weights, with a fifth left free."""
    if not torch.cuda.is_available():
        return list(shape.batches)
    room = 0.8 * torch.cuda.mem_get_info()[1] - shape.weight_bytes
    return [batch for batch in shape.batches if batch * row_bytes(shape) <= room] or list(shape.batches[:1])


def random_vlm(shape: Vlm, device: torch.device) -> Any:
    """Build a model of ``shape`` with random weights in bf16 (fp32 on a CPU) that never ends an answer by itself."""
    from transformers import AutoModelForImageTextToText

    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForImageTextToText.from_config(_config(shape), dtype=number_format(device))
    model.generation_config.eos_token_id = END
    # A zero output row gives END the logit 0; the highest of 152,064 random logits is above 0.
    model.lm_head.weight.data[END] = 0
    return model.eval()


def _config(shape: Vlm) -> Any:
    """Return transformers' configuration of the shape: LLaVA without merged patches, InternVL with."""
    from transformers import InternVLConfig, LlavaConfig

    tower, text = shape.tower, shape.decoder
    vision: dict[str, Any] = {"hidden_size": tower.width, "intermediate_size": tower.mlp, "patch_size": tower.patch}
    vision |= {"num_hidden_layers": tower.layers, "num_attention_heads": tower.heads, "image_size": tower.side}
    language: dict[str, Any] = {"model_type": "qwen2", "hidden_size": text.width, "intermediate_size": text.mlp}
    language |= {"num_hidden_layers": text.layers, "num_attention_heads": text.heads, "vocab_size": text.vocabulary}
    language |= {"num_key_value_heads": text.kv_heads, "eos_token_id": END, "pad_token_id": PAD}
    shared: dict[str, Any] = {
        "text_config": language,
        "image_seq_length": tower.visual_tokens,
        "tie_word_embeddings": False,
    }
    shared |= {"vision_feature_layer": -1, "vision_feature_select_strategy": "default", "pad_token_id": PAD}
    if tower.merge == 1:
        vision |= {"model_type": "clip_vision_model", "projection_dim": tower.width}
        return LlavaConfig(vision_config=vision, image_token_index=IMAGE, **shared)
    return InternVLConfig(
        vision_config=vision | {"model_type": "internvl_vision"}, image_token_id=IMAGE,
        downsample_ratio=1 / tower.merge, **shared,
    )  # fmt: skip


def number_format(device: torch.device) -> torch.dtype:
    """Return the dtype to compute in: bf16 on a GPU, fp32 on a CPU."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
