"""Further families of tiny vision-language models, as `tiny_families` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.worlds.family_parts import SIDE, TEXT, VISION, hf, id_of, llama_text, with_chat

# Special words of processors that name them in code.
EXTRA = {
    "aya_vision": (
        "<|START_OF_IMG|>",
        "<|END_OF_IMG|>",
        "<|IMG_PATCH|>",
        "<|IMG_LINE_BREAK|>",
        "TILE_1",
        "TILE_GLOBAL",
    ),
    "ovis2": ("<IMG_START>", "<IMG_ATOM>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>"),
    "glm4v": ("<|begin_of_video|>", "<|end_of_video|>"),
    "mllama": ("<|python_tag|>",),
}
SIGLIP = VISION | {"model_type": "siglip_vision_model", "vision_use_head": False}
MISTRAL = TEXT | {"model_type": "mistral", "head_dim": 8, "sliding_window": None}
PIXTRAL = VISION | {"model_type": "pixtral", "image_size": 64}


def _pixtral_parts(tokenizer: Any, merge: int) -> Any:
    pictures = hf.PixtralImageProcessor(size={"longest_edge": 64}, patch_size={"height": 8 * merge, "width": 8 * merge})
    return with_chat(
        hf.PixtralProcessor(
            pictures, tokenizer, patch_size=8, spatial_merge_size=merge, image_token="<image>",
            image_break_token="<img>", image_end_token="</img>",
        )
    )  # fmt: skip


def _pixtral(tokenizer: Any) -> tuple[Any, Any]:
    config = hf.LlavaConfig(
        vision_config=PIXTRAL, text_config=MISTRAL, image_token_index=id_of(tokenizer), vision_feature_layer=-1,
        vision_feature_select_strategy="full",
    )  # fmt: skip
    return hf.LlavaForConditionalGeneration(config), _pixtral_parts(tokenizer, 1)


def _mistral3(tokenizer: Any) -> tuple[Any, Any]:
    config = hf.Mistral3Config(
        vision_config=PIXTRAL, text_config=MISTRAL, image_token_index=id_of(tokenizer), spatial_merge_size=2
    )
    return hf.Mistral3ForConditionalGeneration(config), _pixtral_parts(tokenizer, 2)


def _area(name: str, tokenizer: Any) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    signs = {"image": "<image>", "video": "<video>", f"{name}_start": "<img>", f"{name}_end": "</img>"}
    ids = {f"{part}_token_id": id_of(tokenizer, sign) for part, sign in signs.items()}
    sizes: dict[str, Any] = {
        "size": {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}, "patch_size": 8, "merge_size": 2
    }  # fmt: skip
    return ids, sizes, {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}


def _qwen3_5(tokenizer: Any) -> tuple[Any, Any]:
    ids, sizes, rope = _area("vision", tokenizer)
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 8,
              "out_hidden_size": 32, "num_position_embeddings": 64}  # fmt: skip
    text = TEXT | {
        "head_dim": 8, "layer_types": ["linear_attention", "full_attention"], "linear_key_head_dim": 8,
        "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "rope_parameters": rope | {"mrope_interleaved": True, "partial_rotary_factor": 1.0},
    }  # fmt: skip
    config = hf.Qwen3_5Config(vision_config=vision, text_config=text, **ids)
    processor = hf.Qwen3VLProcessor(hf.Qwen2VLImageProcessor(**sizes), tokenizer, hf.Qwen3VLVideoProcessor(**sizes))
    return hf.Qwen3_5ForConditionalGeneration(config), with_chat(processor, "<img><image></img>")


def _glm4v(tokenizer: Any) -> tuple[Any, Any]:
    ids, sizes, rope = _area("image", tokenizer)
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 8,
              "out_hidden_size": 32, "image_size": 64}  # fmt: skip
    text = TEXT | {"rope_parameters": rope | {"partial_rotary_factor": 1.0}}
    config = hf.Glm4vConfig(vision_config=vision, text_config=text, **ids)
    processor = hf.Glm4vProcessor(hf.Glm4vImageProcessor(**sizes), tokenizer, hf.Glm4vVideoProcessor(**sizes))
    return hf.Glm4vForConditionalGeneration(config), with_chat(processor, "<img><image></img>")


def _aya_vision(tokenizer: Any) -> tuple[Any, Any]:
    text = TEXT | {"model_type": "cohere2", "sliding_window": 16, "head_dim": 8}
    config = hf.AyaVisionConfig(
        vision_config=SIGLIP, text_config=text, image_token_index=id_of(tokenizer, "<|IMG_PATCH|>"), downsample_factor=2
    )
    pictures = hf.GotOcr2ImageProcessor(size=SIDE, crop_to_patches=False)
    processor = hf.AyaVisionProcessor(pictures, tokenizer, patch_size=8, img_size=32, downsample_factor=2)
    return hf.AyaVisionForConditionalGeneration(config), with_chat(processor)


def _cohere2_vision(tokenizer: Any) -> tuple[Any, Any]:
    text = TEXT | {"model_type": "cohere2", "sliding_window": 16, "head_dim": 8}
    config = hf.Cohere2VisionConfig(
        vision_config=SIGLIP, text_config=text, image_token_id=id_of(tokenizer), downsample_factor=2,
        alignment_intermediate_size=48,
    )  # fmt: skip
    pictures = hf.Cohere2VisionImageProcessor(size=SIDE, patch_size=2, max_patches=4)
    return hf.Cohere2VisionForConditionalGeneration(config), with_chat(hf.Cohere2VisionProcessor(pictures, tokenizer))


def _ovis2(tokenizer: Any) -> tuple[Any, Any]:
    vision = VISION | {"vocab_size": 48, "hidden_stride": 2, "num_visual_indicator_tokens": 5}
    signs = ("<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>")
    config = hf.Ovis2Config(
        vision_config=vision, text_config=TEXT | {"model_type": "qwen2"}, image_token_id=id_of(tokenizer, "<IMG_ATOM>"),
        visual_indicator_token_ids=[id_of(tokenizer, sign) for sign in signs], hidden_size=32, vocab_size=160,
    )  # fmt: skip
    pictures = hf.Ovis2ImageProcessor(size=SIDE, crop_to_patches=True, max_patches=4)
    processor = hf.Ovis2Processor(pictures, tokenizer, image_seq_length=4)
    return hf.Ovis2ForConditionalGeneration(config), with_chat(processor)


def _deepseek_vl(tokenizer: Any) -> tuple[Any, Any]:
    config = hf.DeepseekVLConfig(vision_config=SIGLIP, text_config=llama_text(), image_token_id=id_of(tokenizer))
    pictures = hf.DeepseekVLImageProcessor(size=SIDE, min_size=14)
    processor = hf.DeepseekVLProcessor(pictures, tokenizer, num_image_tokens=16)
    return hf.DeepseekVLForConditionalGeneration(config), with_chat(processor)


def _lfm2_vl(tokenizer: Any) -> tuple[Any, Any]:
    vision = VISION | {"model_type": "siglip2_vision_model", "num_patches": 16, "vision_use_head": False}
    text = TEXT | {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False}
    config = hf.Lfm2VlConfig(
        vision_config=vision, text_config=text, image_token_id=id_of(tokenizer), projector_hidden_size=32
    )
    pictures = hf.Lfm2VlImageProcessor(
        size=SIDE, tile_size=32, encoder_patch_size=8, min_image_tokens=1, max_image_tokens=4, max_tiles=4,
        do_image_splitting=False, max_num_patches=16,
    )  # fmt: skip
    return hf.Lfm2VlForConditionalGeneration(config), with_chat(hf.Lfm2VlProcessor(pictures, tokenizer))


def _mllama(tokenizer: Any) -> tuple[Any, Any]:
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_global_layers": 1,
              "attention_heads": 2, "image_size": 32, "patch_size": 8, "vision_output_dim": 64,
              "intermediate_layers_indices": [1]}  # fmt: skip
    text = TEXT | {"model_type": "mllama_text_model", "num_hidden_layers": 3, "cross_attention_layers": [1]}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}
    config = hf.MllamaConfig(vision_config=vision, text_config=text, image_token_index=id_of(tokenizer))
    pictures = hf.MllamaImageProcessor(size=SIDE, max_image_tiles=4)
    return hf.MllamaForConditionalGeneration(config), with_chat(hf.MllamaProcessor(pictures, tokenizer))


MORE: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "pixtral": _pixtral, "mistral3": _mistral3, "qwen3_5": _qwen3_5, "glm4v": _glm4v, "aya_vision": _aya_vision,
    "cohere2_vision": _cohere2_vision, "ovis2": _ovis2, "deepseek_vl": _deepseek_vl, "lfm2_vl": _lfm2_vl,
    "mllama": _mllama,
}  # fmt: skip
