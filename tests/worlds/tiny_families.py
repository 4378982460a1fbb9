"""Random models of the families of vision-language models, of a few thousand weights, with processors built in code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import processors

from tests.worlds.family_parts import (
    SIDE,
    SIGNS,
    TEXT,
    VISION,
    VOCABULARY,
    hf,
    id_of,
    llama_text,
    tiny_tokenizer,
    with_chat,
)
from tests.worlds.more_families import EXTRA, MORE
from tests.worlds.tiny import fill


def save_family(folder: Path, family: str) -> str:
    """Save a random model of ``family`` (a key of FAMILIES) under ``folder``; return its spec."""
    model, processor = FAMILIES[family](tiny_tokenizer({} if "blip" in family else SIGNS, EXTRA.get(family, ())))
    fill(model, 0.5 if family == "florence2" else 0.2)  # with less, its answer does not depend on the picture
    model.generation_config.eos_token_id = 2
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return f"hf:{folder}"


def _smolvlm(tokenizer: Any) -> tuple[Any, Any]:
    config = hf.SmolVLMConfig(
        vision_config=VISION, text_config=llama_text(), scale_factor=2, image_token_id=id_of(tokenizer), pad_token_id=0
    )
    edges: dict[str, Any] = {"size": {"longest_edge": 128}, "max_image_size": {"longest_edge": 32}}
    pictures = hf.SmolVLMImageProcessor(**edges)
    videos = hf.SmolVLMVideoProcessor(**edges, do_image_splitting=False)
    processor = hf.SmolVLMProcessor(pictures, tokenizer, videos, image_seq_len=4)
    return hf.SmolVLMForConditionalGeneration(config), with_chat(processor)


def _idefics3(tokenizer: Any) -> tuple[Any, Any]:
    config = hf.Idefics3Config(
        vision_config=VISION, text_config=llama_text(), scale_factor=2, image_token_id=id_of(tokenizer), pad_token_id=0
    )
    pictures = hf.Idefics3ImageProcessor(size={"longest_edge": 128}, max_image_size={"longest_edge": 32})
    return hf.Idefics3ForConditionalGeneration(config), with_chat(
        hf.Idefics3Processor(pictures, tokenizer, image_seq_len=4)
    )


def _idefics2(tokenizer: Any) -> tuple[Any, Any]:
    perceiver = {"hidden_size": 32, "resampler_n_latents": 4, "resampler_depth": 1, "resampler_n_heads": 2,
                 "resampler_head_dim": 16, "num_key_value_heads": 2}  # fmt: skip
    text = TEXT | {"model_type": "mistral", "sliding_window": None}
    config = hf.Idefics2Config(
        vision_config=VISION, text_config=text, perceiver_config=perceiver, image_token_id=id_of(tokenizer)
    )
    pictures = hf.Idefics2ImageProcessor(size={"shortest_edge": 24, "longest_edge": 32})
    return hf.Idefics2ForConditionalGeneration(config), with_chat(
        hf.Idefics2Processor(pictures, tokenizer, image_seq_len=4)
    )


def _internvl(tokenizer: Any) -> tuple[Any, Any]:
    vision = VISION | {"image_size": [32, 32], "patch_size": [8, 8]}
    text = TEXT | {"model_type": "qwen2"}
    config = hf.InternVLConfig(
        vision_config=vision, text_config=text, image_token_id=id_of(tokenizer), image_seq_length=4
    )
    pictures = hf.GotOcr2ImageProcessor(size=SIDE, crop_to_patches=True, max_patches=6)
    videos = hf.InternVLVideoProcessor(size=SIDE)
    processor = hf.InternVLProcessor(pictures, tokenizer, videos, image_seq_length=4)
    return hf.InternVLForConditionalGeneration(config), with_chat(processor)


def _llava_onevision(tokenizer: Any) -> tuple[Any, Any]:
    grids = [[32, 32], [32, 64], [64, 32], [64, 64], [96, 32], [32, 96]]
    config = hf.LlavaOnevisionConfig(
        vision_config=VISION | {"model_type": "siglip_vision_model", "vision_use_head": False},
        text_config=TEXT | {"model_type": "qwen2"}, image_token_id=id_of(tokenizer), image_token_index=id_of(tokenizer),
        video_token_index=id_of(tokenizer, "<video>"), image_grid_pinpoints=grids, vision_feature_layer=-1,
    )  # fmt: skip
    pictures = hf.LlavaOnevisionImageProcessor(size=SIDE, image_grid_pinpoints=grids)
    processor = hf.LlavaOnevisionProcessor(
        pictures, tokenizer, hf.LlavaOnevisionVideoProcessor(size=SIDE), num_image_tokens=16,
        vision_feature_select_strategy="full",
    )  # fmt: skip
    return hf.LlavaOnevisionForConditionalGeneration(config), with_chat(processor)


def _llava_next(tokenizer: Any) -> tuple[Any, Any]:
    grids = [[32, 64], [64, 32], [64, 64]]
    vision = VISION | {"model_type": "clip_vision_model", "projection_dim": 32}
    config = hf.LlavaNextConfig(
        vision_config=vision, text_config=llama_text(), image_token_index=id_of(tokenizer), vision_feature_layer=-1,
        image_grid_pinpoints=grids,
    )  # fmt: skip
    pictures = hf.LlavaNextImageProcessor(
        size={"shortest_edge": 32}, crop_size=SIDE, image_grid_pinpoints=grids, do_pad=True
    )
    processor = hf.LlavaNextProcessor(
        pictures, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return hf.LlavaNextForConditionalGeneration(config), with_chat(processor)


def _llava(tokenizer: Any) -> tuple[Any, Any]:
    vision = VISION | {"model_type": "clip_vision_model", "projection_dim": 32}
    config = hf.LlavaConfig(
        vision_config=vision, text_config=llama_text(), image_token_index=id_of(tokenizer), vision_feature_layer=-1
    )
    pictures = hf.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=SIDE)
    processor = hf.LlavaProcessor(
        pictures, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return hf.LlavaForConditionalGeneration(config), with_chat(processor)


def _qwen_parts(tokenizer: Any) -> tuple[dict[str, Any], Any, Any]:
    signs = {"image": "<image>", "video": "<video>", "vision_start": "<img>", "vision_end": "</img>"}
    ids = {f"{name}_token_id": id_of(tokenizer, sign) for name, sign in signs.items()}
    area = {"shortest_edge": 16 * 16, "longest_edge": 64 * 64}
    sizes: dict[str, Any] = {"size": area, "patch_size": 8, "merge_size": 2}
    return ids, hf.Qwen2VLImageProcessor(**sizes), sizes


def _qwen2_5_vl(tokenizer: Any) -> tuple[Any, Any]:
    ids, pictures, sizes = _qwen_parts(tokenizer)
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 8,
              "out_hidden_size": 32, "window_size": 32, "fullatt_block_indexes": [1]}  # fmt: skip
    text = TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    config = hf.Qwen2_5_VLConfig(vision_config=vision, text_config=text, **ids)
    processor = hf.Qwen2_5_VLProcessor(pictures, tokenizer, hf.Qwen2VLVideoProcessor(**sizes))
    return hf.Qwen2_5_VLForConditionalGeneration(config), with_chat(processor, "<img><image></img>")


def _qwen2_vl(tokenizer: Any) -> tuple[Any, Any]:
    ids, pictures, sizes = _qwen_parts(tokenizer)
    vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "mlp_ratio": 2, "num_heads": 2, "patch_size": 8}
    text = TEXT | {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1]}}
    config = hf.Qwen2VLConfig(vision_config=vision, text_config=text, **ids)
    processor = hf.Qwen2VLProcessor(pictures, tokenizer, hf.Qwen2VLVideoProcessor(**sizes))
    return hf.Qwen2VLForConditionalGeneration(config), with_chat(processor, "<img><image></img>")


def _qwen3_vl(tokenizer: Any) -> tuple[Any, Any]:
    ids, pictures, sizes = _qwen_parts(tokenizer)
    vision = {"depth": 2, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2, "patch_size": 8,
              "out_hidden_size": 32, "num_position_embeddings": 64, "deepstack_visual_indexes": [0]}  # fmt: skip
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "mrope_interleaved": True}
    config = hf.Qwen3VLConfig(vision_config=vision, text_config=TEXT | {"head_dim": 8, "rope_parameters": rope}, **ids)
    processor = hf.Qwen3VLProcessor(pictures, tokenizer, hf.Qwen3VLVideoProcessor(**sizes))
    return hf.Qwen3VLForConditionalGeneration(config), with_chat(processor, "<img><image></img>")


def _gemma3(tokenizer: Any) -> tuple[Any, Any]:
    text = TEXT | {"head_dim": 8, "sliding_window": 16}
    config = hf.Gemma3Config(
        vision_config=VISION, text_config=text, mm_tokens_per_image=4, image_token_index=id_of(tokenizer),
        boi_token_index=id_of(tokenizer, "<img>"), eoi_token_index=id_of(tokenizer, "</img>"),
    )  # fmt: skip
    processor = hf.Gemma3Processor(hf.Gemma3ImageProcessor(size=SIDE), tokenizer, image_seq_length=4)
    return hf.Gemma3ForConditionalGeneration(config), with_chat(processor, "<img>")


def _paligemma(tokenizer: Any) -> tuple[Any, Any]:
    text = TEXT | {"model_type": "gemma", "head_dim": 8}
    config = hf.PaliGemmaConfig(
        vision_config=VISION | {"projection_dim": 32, "vision_use_head": False}, text_config=text, projection_dim=32,
        image_token_index=id_of(tokenizer),
    )  # fmt: skip
    pictures = hf.SiglipImageProcessor(size=SIDE)
    pictures.image_seq_length = 16
    return hf.PaliGemmaForConditionalGeneration(config), hf.PaliGemmaProcessor(pictures, tokenizer)


def _florence2(tokenizer: Any) -> tuple[Any, Any]:
    vision = {"embed_dim": [16, 32], "num_heads": [1, 2], "num_groups": [1, 2], "depths": [1, 1], "patch_size": [7, 3],
              "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 4,
              "projection_dim": 32, "max_position_embeddings": 8}  # fmt: skip
    text = {"vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
            "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48,
            "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "decoder_start_token_id": 2, "forced_bos_token_id": None}  # fmt: skip
    config = hf.Florence2Config(vision_config=vision, text_config=text, image_token_id=id_of(tokenizer))
    pictures = hf.CLIPImageProcessor(size=SIDE, do_center_crop=False)
    pictures.image_seq_length = 17
    return hf.Florence2ForConditionalGeneration(config), hf.Florence2Processor(pictures, tokenizer)


def _blip(tokenizer: Any) -> tuple[Any, Any]:
    around = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    tokenizer.backend_tokenizer.post_processor = around
    text = TEXT | {"num_key_value_heads": 4, "projection_dim": 32, "encoder_hidden_size": 32, "sep_token_id": 2}
    config = hf.BlipConfig(vision_config=VISION | {"projection_dim": 32}, text_config=text, projection_dim=32)
    return hf.BlipForConditionalGeneration(config), hf.BlipProcessor(hf.BlipImageProcessor(size=SIDE), tokenizer)


def _queries(tokenizer: Any) -> dict[str, Any]:
    former = {"vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
              "intermediate_size": 48, "encoder_hidden_size": 32}  # fmt: skip
    text = {"model_type": "opt", "vocab_size": VOCABULARY, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2,
            "num_attention_heads": 2, "word_embed_proj_dim": 32, "pad_token_id": 0, "bos_token_id": 1,
            "eos_token_id": 2, "max_position_embeddings": 256}  # fmt: skip
    return {"vision_config": VISION, "qformer_config": former, "text_config": text, "num_query_tokens": 4,
            "image_token_index": id_of(tokenizer)}  # fmt: skip


def _blip2(tokenizer: Any) -> tuple[Any, Any]:
    model = hf.Blip2ForConditionalGeneration(hf.Blip2Config(**_queries(tokenizer)))
    return model, hf.Blip2Processor(hf.BlipImageProcessor(size=SIDE), tokenizer, num_query_tokens=4)


def _instructblip(tokenizer: Any) -> tuple[Any, Any]:
    model = hf.InstructBlipForConditionalGeneration(hf.InstructBlipConfig(**_queries(tokenizer)))
    pictures = hf.BlipImageProcessor(size=SIDE)
    return model, hf.InstructBlipProcessor(pictures, tokenizer, tiny_tokenizer({}), num_query_tokens=4)


FAMILIES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "smolvlm": _smolvlm, "qwen2_5_vl": _qwen2_5_vl, "internvl": _internvl, "llava": _llava, "idefics3": _idefics3,
    "idefics2": _idefics2, "llava_onevision": _llava_onevision, "llava_next": _llava_next, "qwen2_vl": _qwen2_vl,
    "qwen3_vl": _qwen3_vl, "gemma3": _gemma3, "paligemma": _paligemma, "florence2": _florence2, "blip": _blip,
    "blip2": _blip2, "instructblip": _instructblip, **MORE,
}  # fmt: skip
