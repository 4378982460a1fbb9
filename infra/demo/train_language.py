"""Train the demo's language model, a small GPT-2, and write it in transformers' form.

    .venv/bin/python infra/demo/train_language.py --steps 1200 --out infra/demo/models/language [--resume DIR]

It learns the grammar's sentences, packed one after another, each preceded by the end token. On one thread the same seed
and steps give the same weights.
"""

import argparse
import math
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from byte_bpe import train_bpe
from grammar import Grammar
from sheets import names
from tokenizers import Tokenizer
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from wording import vocabulary

VOCABULARY, CONTEXT = 4096, 128
WIDTH, LAYERS, HEADS = 128, 3, 4
END = "<|endoftext|>"


def build_tokenizer(grammar: Grammar) -> PreTrainedTokenizerFast:
    """Build a byte-level BPE that keeps case; names occur eight more times than in the grammar's texts."""
    texts = [name for name in grammar.names for _ in range(8)] + [grammar.text() for _ in range(60_000)]
    bpe = train_bpe(texts, VOCABULARY - 1, lowercase=False)
    bpe.add_special_tokens([END])
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=END, eos_token=END, pad_token="<pad>", model_max_length=CONTEXT
    )


def batches(grammar: Grammar, bpe: Tokenizer, rows: int) -> Iterator[torch.Tensor]:
    """Yield endless (rows, CONTEXT) token ids: sentences packed end to end; each row begins with a sentence."""
    end, waiting = bpe.token_to_id(END), []
    while True:
        packed = []
        while len(packed) < rows:
            row: list[int] = []
            while len(row) < CONTEXT:
                waiting = waiting or [each.ids for each in bpe.encode_batch([grammar.text() for _ in range(4096)])]
                row += [end, *waiting.pop()]
            packed.append(row[:CONTEXT])
        yield torch.tensor(packed)


def train(args: argparse.Namespace) -> None:
    """Train for the given steps and write the model."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names = names()
    grammar = Grammar(concept_names, vocabulary(concept_names), args.seed, args.over)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.resume) if args.resume else build_tokenizer(grammar)
    tokenizer.save_pretrained(args.out)
    end = tokenizer.eos_token_id
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=end,
        eos_token_id=end, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )).train()  # fmt: skip
    if args.resume:
        model = GPT2LMHeadModel.from_pretrained(args.resume, dtype=torch.float32).train()
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98))
    data, started = batches(grammar, tokenizer.backend_tokenizer, args.rows), time.process_time()
    for step in range(args.steps):
        rate = args.lr * min(1, (step + 1) / 50) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        ids = next(data)
        logits = model(input_ids=ids).logits[:, :-1].flatten(0, 1)
        # Label smoothing limits the cost of a word that the grammar never puts there to 11 nats.
        loss = F.cross_entropy(logits, ids[:, 1:].flatten(), label_smoothing=0.05)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 25 == 0 or step == args.steps - 1:
            print(f"language {step} {time.process_time() - started:.0f} CPU s loss {loss.item():.3f}", flush=True)
    model.eval().half().save_pretrained(args.out)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--rows", type=int, default=16, help="rows of 128 tokens a batch")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--over", type=float, default=0.08, help="share of texts that say something over and over")
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models" / "language")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=13)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
