"""Build random models of the families that ``30m`` names or people ask for, with the processors that cut pictures."""

from __future__ import annotations

from typing import Any

import torch

from infra.bench.gpu_models import number_format
from infra.bench.gpu_shapes import QWEN_7B, TOY_DECODER, Decoder, Tower, Vlm
from infra.bench.gpu_texts import END, IMAGE, PAD, tokenizer

# SmolVLM2-2.2B, one tile of 384 px: 729 patches, 9 of which are a token. The mlp's width is SigLIP's.
SMOL = Vlm(Tower(27, 1152, 16, 4304, 384, 14, merge=3), Decoder(24, 2048, 32, 32, 8192, 49280), (256,), answer=128)
# InternVL3-8B: tiles of 448 px, up to 12 and the whole picture.
INTERN = Vlm(Tower(24, 1024, 16, 4096, 448, 14, merge=2), QWEN_7B, (256,), answer=128)
# Qwen2.5-VL-7B: as many patches as a picture has. Its gated mlp of 3,420 has the weights of a plain one of 5,130.
QWEN = Vlm(Tower(32, 1280, 16, 5130, 448, 14, merge=2), QWEN_7B, (256,), answer=128)
SHAPES = {"smolvlm": SMOL, "internvl": INTERN, "qwen": QWEN}
TOY = Vlm(Tower(2, 32, 2, 48, 32, 8, merge=2), TOY_DECODER, (6,), answer=12, prompt=6)
SIGNS = {
    "image_token": "<image>", "video_token": "<video>", "start_image_token": "<img>", "end_image_token": "</img>",
    "context_image_token": "<image>", "fake_image_token": "<fake>", "global_image_token": "<global>",
    "end_of_utterance_token": "<end>",
}  # fmt: skip


def family_shape(name: str, size: str) -> Vlm:
    """Return the shape of a family; at ``size`` 'toy' a small one."""
    return SHAPES[name] if size == "real" else TOY


def family(name: str, shape: Vlm, device: torch.device) -> tuple[Any, Any]:
    """Build the model, which never ends an answer by itself, and its processor."""
    from transformers import AutoModelForImageTextToText

    words = tokenizer(shape.decoder.vocabulary, SIGNS)
    config, processor = {"smolvlm": _smolvlm, "internvl": _internvl, "qwen": _qwen}[name](shape, words)
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForImageTextToText.from_config(config, dtype=number_format(device))
    model.generation_config.eos_token_id = END
    model.lm_head.weight.data[END] = 0
    processor.chat_template = None
    return model.eval(), processor


def _text(decoder: Decoder, kind: str) -> dict[str, Any]:
    return {
        "model_type": kind, "hidden_size": decoder.width, "intermediate_size": decoder.mlp, "pad_token_id": PAD,
        "num_hidden_layers": decoder.layers, "num_attention_heads": decoder.heads, "eos_token_id": END,
        "num_key_value_heads": decoder.kv_heads, "vocab_size": decoder.vocabulary, "tie_word_embeddings": False,
    }  # fmt: skip


def _vision(tower: Tower) -> dict[str, Any]:
    return {
        "hidden_size": tower.width, "intermediate_size": tower.mlp, "num_hidden_layers": tower.layers,
        "num_attention_heads": tower.heads, "image_size": tower.side, "patch_size": tower.patch,
    }  # fmt: skip


def _smolvlm(shape: Vlm, words: Any) -> tuple[Any, Any]:
    import transformers as hf

    made: Any = hf  # its processors take settings that their declared types lack
    edges: dict[str, Any] = {"size": {"longest_edge": 4 * shape.tower.side}, "do_image_splitting": False}
    edges["max_image_size"] = {"longest_edge": shape.tower.side}
    config = made.SmolVLMConfig(
        vision_config=_vision(shape.tower), text_config=_text(shape.decoder, "llama"), scale_factor=shape.tower.merge,
        image_token_id=IMAGE, pad_token_id=PAD, tie_word_embeddings=False,
    )  # fmt: skip
    videos = made.SmolVLMVideoProcessor(**edges)
    pictures = made.SmolVLMImageProcessor(**edges)
    return config, made.SmolVLMProcessor(pictures, words, videos, image_seq_len=shape.tower.visual_tokens)


def _internvl(shape: Vlm, words: Any) -> tuple[Any, Any]:
    import transformers as hf

    made: Any = hf
    side = {"height": shape.tower.side, "width": shape.tower.side}
    vision = _vision(shape.tower) | {"image_size": [shape.tower.side] * 2, "patch_size": [shape.tower.patch] * 2}
    config = made.InternVLConfig(
        vision_config=vision, text_config=_text(shape.decoder, "qwen2"), image_token_id=IMAGE,
        image_seq_length=shape.tower.visual_tokens, downsample_ratio=1 / shape.tower.merge, tie_word_embeddings=False,
    )  # fmt: skip
    pictures = made.GotOcr2ImageProcessor(size=side, crop_to_patches=True, max_patches=12)
    videos = made.InternVLVideoProcessor(size=side)
    return config, made.InternVLProcessor(pictures, words, videos, image_seq_length=shape.tower.visual_tokens)


def _qwen(shape: Vlm, words: Any) -> tuple[Any, Any]:
    import transformers as hf

    made: Any = hf
    tower, text = shape.tower, shape.decoder
    mlp, window = 2 * tower.mlp // 3, 8 * tower.patch
    full = list(range(7, tower.layers, 8)) or [tower.layers - 1]
    vision = {"depth": tower.layers, "hidden_size": tower.width, "intermediate_size": mlp, "num_heads": tower.heads,
              "patch_size": tower.patch, "out_hidden_size": text.width, "window_size": window,
              "fullatt_block_indexes": full, "spatial_merge_size": tower.merge}  # fmt: skip
    half = text.width // text.heads // 2
    sections = [half - 2 * (3 * half // 8), 3 * half // 8, 3 * half // 8]  # 16, 24, 24 of 64
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": sections}
    signs = {"image": "<image>", "video": "<video>", "vision_start": "<img>", "vision_end": "</img>"}
    ids = {f"{part}_token_id": words.convert_tokens_to_ids(sign) for part, sign in signs.items()}
    language = _text(text, "qwen2_5_vl_text") | {"rope_parameters": rope}
    config = made.Qwen2_5_VLConfig(vision_config=vision, text_config=language, tie_word_embeddings=False, **ids)
    area: dict[str, Any] = {"shortest_edge": (2 * tower.patch) ** 2, "longest_edge": 16384 * 28 * 28}
    sizes: dict[str, Any] = {"size": area, "patch_size": tower.patch, "merge_size": tower.merge}
    return config, made.Qwen2_5_VLProcessor(
        made.Qwen2VLImageProcessor(**sizes), words, made.Qwen2VLVideoProcessor(**sizes)
    )
