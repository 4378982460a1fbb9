"""A LLaVA of a few thousand weights with a fixed answer to each prompt: its language model is a chain of words."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    CLIPImageProcessor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
WIDTHS = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
SIDE = 32


def save_scripted(folder: Path, answers: dict[str, list[str]]) -> str:
    """Save a model that answers each prompt of one word with the prompt's list of words.

    No word may be in two lists. A list whose last word equals its first repeats for ever; any other list ends.
    """
    words = list(dict.fromkeys([*SPECIAL, *answers, *(word for answer in answers.values() for word in answer)]))
    number = {word: n for n, word in enumerate(words)}
    inner = Tokenizer(models.WordLevel(number, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(SPECIAL)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    ids = {f"{name}_id": number[token] for name, token in names.items() if name != "unk_token"}
    text = WIDTHS | ids | {"model_type": "llama", "vocab_size": len(words), "num_key_value_heads": 2}
    vision = WIDTHS | {"image_size": SIDE, "patch_size": 8, "model_type": "clip_vision_model", "projection_dim": 32}
    config = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=number["<image>"], vision_feature_layer=-1
    )
    model: Any = LlavaForConditionalGeneration(config)
    _script(model, number, answers)
    model.generation_config.eos_token_id = number["</s>"]
    model.save_pretrained(folder)
    pictures = CLIPImageProcessor(
        size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE}, do_center_crop=True
    )
    LlavaProcessor(
        pictures, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1
    ).save_pretrained(folder)
    return f"hf:{folder}"


def _script(model: Any, number: dict[str, int], answers: dict[str, list[str]]) -> None:
    """Set the weights so that each word is followed by one other.

    Layers that add nothing make a word's logits depend on that word alone.
    """
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")) and "language_model" in name:
                weight.zero_()
        embedding = model.get_input_embeddings().weight
        embedding.copy_(torch.randn(embedding.shape, generator=generator))
        head = model.get_output_embeddings().weight
        head.zero_()
        for prompt, answer in answers.items():
            chain = [prompt, *answer] if len(answer) > 1 and answer[-1] == answer[0] else [prompt, *answer, "</s>"]
            for word, following in pairwise(chain):
                head[number[following]] += torch.nn.functional.normalize(embedding[number[word]], dim=0)
