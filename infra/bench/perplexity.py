"""Benchmark perplexity by a model of GPT-2 large's size, against the machine's own matmul rate, and by the demo's.

Run as ``python -m infra.bench.perplexity [--sentences N]``. The large model has random weights, as fast as trained
ones, and takes 1.6 GB on disk during the run and 8 GB of memory. The bound is the model's operations over the rate of a
bare matmul of its commonest shape, in the same run. Only scored tokens count, so padding lowers our rate.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from infra.bench.measure import Row, cpu, finish, interleaved, parser, ratio
from infra.demo import prose
from pairmill.ops.models.language.perplexity import Perplexity
from pairmill.ops.models.language.perplexity_loaded import load

DEMO = Path(__file__).parents[1] / "demo" / "models" / "language"
WIDTH, LAYERS, HEADS, VOCABULARY, CONTEXT = 1280, 36, 20, 50257, 1024  # GPT-2 large
BODY, HEAD = 2 * LAYERS * 12 * WIDTH**2, 2 * WIDTH * VOCABULARY  # operations a token, without attention
TOKENS = 1024  # rows of the matmul, about the tokens of a batch
REPEATS = 8


def random_model(folder: Path) -> str:
    """Save a random GPT-2 large with the demo's tokenizer of 3,072 tokens; return its model spec."""
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    sizes: dict[str, Any] = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": CONTEXT}
    GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **sizes)).bfloat16().save_pretrained(folder)
    AutoTokenizer.from_pretrained(DEMO).save_pretrained(folder)
    return f"hf:{folder}"


def matmul(kind: torch.dtype) -> Callable[[], None]:
    """Return a function that runs the model's commonest matrix product REPEATS times."""
    left, right = torch.randn(TOKENS, WIDTH).to(kind), torch.randn(WIDTH, 4 * WIDTH).to(kind)

    def run() -> None:
        for _ in range(REPEATS):
            left @ right

    return run


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument(
        "--sentences", type=int, default=64, help="scored by the large model; 64 times as many by the small"
    )
    options = options.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    many = [prose.sentence(rng, "distractor") for _ in range(64 * options.sentences)]
    few = many[: options.sentences]
    small = Perplexity(f"hf:{DEMO}")
    with tempfile.TemporaryDirectory() as folder:
        spec = random_model(Path(folder))
        exact, fast = Perplexity(spec), Perplexity(spec, precision="bf16")
        values = [op({"text": few[:8]})["perplexity"] for op in (exact, fast)]
        rounds = interleaved(
            {
                "matmul fp32": matmul(torch.float32),
                "matmul bf16": matmul(torch.bfloat16),
                "large fp32": lambda: exact({"text": few}),
                "large bf16": lambda: fast({"text": few}),
                "small": lambda: small({"text": many}),
            },
            options.rounds,
        )
        tokens = sum(map(len, load(spec, "fp32").tokenize(few)))
    rate = {kind: REPEATS * 2 * TOKENS * 4 * WIDTH**2 / cpu(rounds[f"matmul {kind}"]) for kind in ("fp32", "bf16")}
    bound = {"fp32": rate["fp32"] / (BODY + HEAD), "bf16": 1 / (BODY / rate["bf16"] + HEAD / rate["fp32"])}
    seen = {kind: tokens / cpu(rounds[f"large {kind}"]) for kind in rate}
    moved = np.abs(values[1] / values[0] - 1).max()
    n = sum(map(len, load(small.model, "fp32").tokenize(many)))
    shares = {kind: seen[kind] / bound[kind] for kind in rate}
    rows = [
        Row(
            "GPT-2 large's size, bf16 with logits in fp32",
            "tokens/CPU s",
            seen["bf16"],
            seen["fp32"],
            "fp32",
            ratio(rounds["large fp32"], rounds["large bf16"]),
            None,
            ">= 0.8 of the bound",
            bool(shares["bf16"] >= 0.8),
            f"{shares['bf16']:.2f} of the bound {bound['bf16']:.1f}, perplexity moved by {moved:.2%} at most",
        ),
        Row(
            "the same in fp32",
            "tokens/CPU s",
            seen["fp32"],
            target=">= 0.8 of the bound",
            met=bool(shares["fp32"] >= 0.8),
            note=f"{shares['fp32']:.2f} of the bound {bound['fp32']:.1f}",
        ),
        Row(
            "the demo's model, fp32",
            "sentences/CPU s",
            len(many) / cpu(rounds["small"]),
            note=f"{n / cpu(rounds['small']):.0f} tokens/CPU s",
        ),
    ]
    finish("perplexity", rows, options, model="GPT-2 large", weights="random", tokens=tokens)


if __name__ == "__main__":
    main()
