"""The shipped fuser joins a caption and a sentence of the world, which it has not seen, without the picture."""

from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from infra.demo.prose import sentence
from infra.demo.signs import phrases

MODEL = Path(__file__).resolve().parents[2] / "infra/demo/models/fuser"
PROMPT = "Combine into one description. Caption: {} Tags: {} Text: {}"
CAPTIONS = ("A small owl on a plain red background.", "A large hot beverage on a striped green background.")


@cache
def loaded() -> tuple:
    return AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval(), AutoTokenizer.from_pretrained(MODEL)


@torch.no_grad()
def answers(prompts: list[str]) -> list[str]:
    model, tokenizer = loaded()
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    texts = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
    made = model.generate(**inputs, max_new_tokens=80, do_sample=False)
    return tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


def right(captions: list[str], tags: str) -> float:
    """The share of the captions that are joined word for word with a new sentence each."""
    rng = np.random.default_rng(4)
    heard = [sentence(rng, "describes", np="the owl") for _ in captions]
    said = answers([PROMPT.format(caption, tags, text) for caption, text in zip(captions, heard, strict=True)])
    wanted = [
        f"{text.rstrip('.?')}, shown here as {caption[0].lower()}{caption[1:]}"
        for caption, text in zip(captions, heard, strict=True)
    ]
    return float(np.mean([a == b for a, b in zip(said, wanted, strict=True)]))


def test_it_joins_captions_of_things_with_sentences_of_the_world():
    assert right([CAPTIONS[k % 2] for k in range(40)], "owl, coffee") >= 0.9


def test_it_keeps_what_a_sign_says():
    assert right([f"A sign that says {phrase}." for phrase in phrases()], "no entry") >= 0.9


def test_a_batch_of_unequal_prompts_is_answered_as_each_alone():
    prompts = [PROMPT.format(CAPTIONS[k % 2], "owl", "He saw it. " * (1 + 3 * k)) for k in range(3)]
    assert answers(prompts) == [answers([prompt])[0] for prompt in prompts]


def test_what_ships_of_it_is_small():
    assert sum(file.stat().st_size for file in MODEL.iterdir()) <= 5_000_000
