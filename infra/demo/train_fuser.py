"""Train the demo's fuser, a small Llama that combines caption, tags and sentence without the picture.

    .venv/bin/python infra/demo/train_fuser.py --steps 300 --out infra/demo/models/fuser [--resume DIR]

It starts from the captioner's language model and tokenizer, and learns the captioner's second job from text alone. On
one thread the same seed and steps give the same weights.
"""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from canvas import COLOUR_WORDS, PATTERN_WORDS
from captions import exercise
from sheets import names
from signs import phrases
from tokenizers import Tokenizer
from transformers import (
    AutoTokenizer,
    FastVlmForConditionalGeneration,
    LlamaForCausalLM,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from wording import Wording, vocabulary

MODELS = Path(__file__).parent / "models"
SIGNS = 0.06  # share of exercises about a picture of text
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% if m['role'] == 'assistant' %}<end>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


class Exercises:
    """Endless random fuse prompts with their answers; ``words`` is the result of ``wording.vocabulary``."""

    def __init__(self, concept_names: list[str], words: list[str], seed: int):
        self.names, self.signs, self.wording = concept_names, phrases(), Wording(words, seed)

    def next(self) -> tuple[str, str]:
        """Return one (prompt, answer) pair."""
        rng = self.wording.rng
        shown = rng.choice(self.names), rng.choice(PATTERN_WORDS), rng.choice(COLOUR_WORDS), rng.random() < 0.5
        return exercise(self.wording, self.names, *shown, rng.choice(self.signs) if rng.random() < SIGNS else "")


def begin(captioner: Path) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Return the captioner's language model in fp32, and its tokenizer with a text-only chat template."""
    whole = FastVlmForConditionalGeneration.from_pretrained(captioner, dtype=torch.float32)
    model = LlamaForCausalLM(whole.config.text_config)
    model.model.load_state_dict(whole.model.language_model.state_dict())
    known = AutoTokenizer.from_pretrained(captioner)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=known.backend_tokenizer, pad_token="<pad>", eos_token="<end>", padding_side="left",
        model_max_length=known.model_max_length, chat_template=TEMPLATE,
    )  # fmt: skip
    model.generation_config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model, tokenizer


def batches(exercises: Exercises, bpe: Tokenizer, rows: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield endless right-padded ids and labels (-100 outside the answer), both (rows, longest) int64."""
    user, assistant, end = (bpe.token_to_id(token) for token in ("<user>", "<assistant>", "<end>"))
    while True:
        pairs = [exercises.next() for _ in range(rows)]
        heads = [[user, *e.ids, assistant] for e in bpe.encode_batch([asked for asked, _ in pairs])]
        answers = [[*e.ids, end] for e in bpe.encode_batch([answer for _, answer in pairs])]
        longest = max(len(h) + len(a) for h, a in zip(heads, answers, strict=True))
        ids = torch.zeros(rows, longest, dtype=torch.int64)
        labels = torch.full((rows, longest), -100)
        for row, (h, a) in enumerate(zip(heads, answers, strict=True)):
            ids[row, : len(h) + len(a)] = torch.tensor(h + a)
            labels[row, len(h) : len(h) + len(a)] = torch.tensor(a)
        yield ids, labels


@torch.no_grad()
def right(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, exercises: Exercises, n: int) -> float:
    """Return the share of ``n`` new exercises that the model answers word for word, greedily."""
    pairs, hits = [exercises.next() for _ in range(n)], 0
    for k in range(0, n, 50):
        turns = [[{"role": "user", "content": asked}] for asked, _ in pairs[k : k + 50]]
        texts = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        inputs = tokenizer(texts, padding=True, return_tensors="pt", return_token_type_ids=False)
        made = model.generate(**inputs, max_new_tokens=128, do_sample=False)
        said = tokenizer.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
        hits += sum(a == b.strip() for a, (_, b) in zip(said, pairs[k : k + 50], strict=True))
    return hits / n


def train(args: argparse.Namespace) -> None:
    """Train for the given steps, write the model, and measure it on new exercises."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names = names()
    words = vocabulary(concept_names)
    model, tokenizer = begin(args.captioner)
    if args.resume:
        model = LlamaForCausalLM.from_pretrained(args.resume, dtype=torch.float32)
    model.train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98))
    data = batches(Exercises(concept_names, words, args.seed), tokenizer.backend_tokenizer, args.rows)
    started = time.process_time()
    for step in range(args.steps):
        rate = args.lr * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids, labels = next(data)
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        wanted = labels[:, 1:] != -100  # right padding under a causal mask needs no attention mask
        loss = F.cross_entropy(model.lm_head(hidden[wanted]), labels[:, 1:][wanted])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"fuser {step} {time.process_time() - started:.0f} CPU s loss {loss.item():.4f}", flush=True)
    model = model.eval().half()
    model.save_pretrained(args.out)
    tokenizer.save_pretrained(args.out)
    spent = time.process_time() - started
    share = right(model.float(), tokenizer, Exercises(concept_names, words, args.seed + 1000), args.held_out)
    print(f"fuser: {args.steps} steps, {spent:.0f} CPU s, {share:.3f} of {args.held_out} word for word", flush=True)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rows", type=int, default=32, help="exercises a batch")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument(
        "--captioner", type=Path, default=MODELS / "captioner", help="whose language model to begin from"
    )
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=MODELS / "fuser")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--held-out", type=int, default=500, help="new exercises to measure on")
    parser.add_argument("--seed", type=int, default=15)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
