"""Perplexity, slow and obvious: one text at a time, one token at a time, each from all that stands before it."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def perplexity(folder: Path | str, text: str, context: int) -> float:
    """exp of the mean of -log p over the first ``context`` - 1 tokens, the first after the start token alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    seen, losses = [start], []
    for token in tokenizer(text, add_special_tokens=False)["input_ids"][: context - 1]:
        with torch.no_grad():
            logits = model(torch.tensor([seen])).logits[0, -1].tolist()
        most = max(logits)
        whole = math.log(sum(math.exp(logit - most) for logit in logits)) + most
        losses.append(whole - logits[token])
        seen.append(token)
    return math.exp(sum(losses) / len(losses)) if losses else math.nan
