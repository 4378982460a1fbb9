"""Random vision-language models of a few thousand weights with processors built in code, in transformers' format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

from tests.worlds.tiny import fill

PICTURE = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", *PICTURE]
PROMPTS = "User Assistant : . ? describe what is in this picture please tell me more of the old red engine"
VOCABULARY = 64
TEMPLATE = (
    "{% for message in messages %}User : {% for part in message.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}{% endfor %} {% endfor %}"
    "{% if add_generation_prompt %}Assistant : {% endif %}"
)


def save_vlm(
    folder: Path, kind: str = "idefics3", end: str = "</s>", template: str | None = TEMPLATE, width: int = 32
) -> str:
    """Save a random 'idefics3' or 'llava' under ``folder``; return its spec.

    ``end`` is the word that ends an answer.
    """
    tokenizer = _tokenizer()
    model, processor = (_idefics3 if kind == "idefics3" else _llava)(tokenizer, _widths(width))
    processor.chat_template = template
    fill(model, 0.2)
    model.generation_config.eos_token_id = tokenizer.convert_tokens_to_ids(end)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return f"hf:{folder}"


def _tokenizer() -> PreTrainedTokenizerFast:
    words = (
        SPECIAL
        + PROMPTS.split()
        + [f"word{number}" for number in range(VOCABULARY - len(SPECIAL) - len(PROMPTS.split()))]
    )
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(SPECIAL)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def _widths(hidden: int) -> dict[str, int]:
    return {"hidden_size": hidden, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def _language(tokenizer: Any, widths: dict[str, int]) -> dict[str, Any]:
    ids = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return widths | ids | {"model_type": "llama", "vocab_size": VOCABULARY, "num_key_value_heads": 2}


def _idefics3(tokenizer: Any, widths: dict[str, int]) -> tuple[Any, Any]:
    image = tokenizer.convert_tokens_to_ids("<image>")
    vision = widths | {"image_size": 32, "patch_size": 8}
    config = Idefics3Config(
        vision_config=vision, text_config=_language(tokenizer, widths), scale_factor=2, image_token_id=image
    )
    pictures = Idefics3ImageProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 32}, do_image_splitting=False
    )
    return Idefics3ForConditionalGeneration(config), Idefics3Processor(pictures, tokenizer, image_seq_len=4)


def _llava(tokenizer: Any, widths: dict[str, int]) -> tuple[Any, Any]:
    image = tokenizer.convert_tokens_to_ids("<image>")
    vision = widths | {"image_size": 32, "patch_size": 8, "model_type": "clip_vision_model", "projection_dim": 32}
    config = LlavaConfig(
        vision_config=vision, text_config=_language(tokenizer, widths), image_token_index=image, vision_feature_layer=-1
    )
    side = {"height": 32, "width": 32}
    pictures = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=side)
    processor = LlavaProcessor(
        pictures, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
    )
    return LlavaForConditionalGeneration(config), processor
