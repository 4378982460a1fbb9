"""Random chat models of a few thousand weights (byte tokens, ChatML template), in transformers' format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from tests.worlds.tiny import fill

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for turn in messages %}<|im_start|>{{ turn['role'] }}\n{{ turn['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}


def save_chat_model(
    folder: Path, template: str | None = TEMPLATE, ends: list[int] | None = None, context: int = 512, **habits: Any
) -> str:
    """Save a random Qwen2 under ``folder``; return its spec.

    ``ends`` are the tokens that end an answer, by default the tokenizer's own; ``habits`` are further entries of
    generation_config.json.
    """
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    tokenizer.chat_template = template
    config = Qwen2Config(
        vocab_size=len(tokenizer), num_key_value_heads=1, max_position_embeddings=context, bos_token_id=None,
        eos_token_id=None, **SIZES,
    )  # fmt: skip
    model: Any = Qwen2ForCausalLM(config)
    fill(model, 0.3)
    model.generation_config = GenerationConfig(eos_token_id=ends, **habits)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"hf:{folder}"
