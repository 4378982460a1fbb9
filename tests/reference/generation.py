"""Generation, slow and obvious: one prompt at a time, the likeliest token each time, each from all before it anew."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def answer(folder: Path | str, prompt: str, max_tokens: int) -> tuple[str, int, bool]:
    """The text, its tokens, and whether an end token follows them within ``max_tokens``."""
    said, finished = tokens(folder, prompt, max_tokens)
    text = AutoTokenizer.from_pretrained(folder).decode(said, skip_special_tokens=True)
    return text.strip(), len(said), finished


def tokens(folder: Path | str, prompt: str, max_tokens: int) -> tuple[list[int], bool]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    ends = model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id] if ends is None else ends
    if tokenizer.chat_template:
        turn = [{"role": "user", "content": prompt}]
        seen = list(tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=False))
    else:
        seen = list(tokenizer(prompt)["input_ids"])
    said: list[int] = []
    while len(said) < max_tokens:
        with torch.no_grad():
            token = int(model(torch.tensor([seen + said]), use_cache=False).logits[0, -1].argmax())
        if token in ends:
            return said, True
        said.append(token)
    return said, False
