"""Random GPT-2 models of a few thousand weights with a word-level tokenizer, in transformers' format."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from tests.worlds.tiny import fill

START = "<|endoftext|>"
WORDS = "a the old red fire engine waits beside station crew of for next call cat . , one two three four five"


def save_language_model(folder: Path, context: int = 64, names: dict[str, str] | None = None, tied: bool = True) -> str:
    """Save a random GPT-2 under ``folder``; return its spec.

    ``names`` are the special tokens that its tokenizer knows; ``tied`` shares the weights of embeddings and output
    layer.
    """
    words = [START, *WORDS.split(), "<", "|", ">", "endoftext"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="cat"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens([START])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **({"eos_token": START} if names is None else names))
    sizes: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": context, "vocab_size": len(words)}
    model: Any = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied, **sizes))
    fill(model, 0.2)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return f"hf:{folder}"
