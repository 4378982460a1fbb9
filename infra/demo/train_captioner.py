"""Train the demo's vision-language model and write it in transformers' form (FastVLM: a ConvNeXt tower, a small Llama).

    .venv/bin/python infra/demo/train_captioner.py --seconds 540 --out infra/demo/models/captioner [--resume DIR]

The model learns two prompted jobs: describe a picture, and combine caption, tags and a sentence into one description.
"""

import argparse
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from byte_bpe import train_bpe
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter
from captions import DESCRIBE, FUSE, caption, exercise
from sheets import names, pictures
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import (
    AutoProcessor,
    CLIPImageProcessor,
    FastVlmConfig,
    FastVlmForConditionalGeneration,
    LlamaConfig,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)
from wording import Wording, vocabulary

SIDE, STRIDE = 96, 32  # px of a picture, and the tower's stride, which gives 3 x 3 image tokens
VOCABULARY = 3072
SPECIAL = ["<image>", "<user>", "<assistant>", "<end>"]
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
    "{% if m['role'] == 'assistant' %}<end>{% endif %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
)


def build_processor(words: list[str], concept_names: list[str]) -> LlavaProcessor:
    """Build a byte-level BPE tokenizer with a chat template, and a picture processor that squeezes to SIDE x SIDE."""
    wording = Wording(words, 7)
    shapes = [caption(n, PATTERN_WORDS[k % 7], COLOUR_WORDS[k % 11], k % 2 == 0) for k, n in enumerate(concept_names)]
    texts = shapes * 60 + concept_names * 100 + (DESCRIBE + FUSE) * 300 + [wording.nothing() for _ in range(60000)]
    bpe = train_bpe(texts, VOCABULARY - len(SPECIAL), lowercase=False)
    bpe.add_special_tokens(SPECIAL)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", eos_token="<end>", padding_side="left", model_max_length=512,
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    square = {"height": SIDE, "width": SIDE}
    images = CLIPImageProcessor(
        size=square,
        do_center_crop=False,
        crop_size=square,
        image_mean=[0.5] * 3,
        image_std=[0.5] * 3,
        do_convert_rgb=True,
    )
    return LlavaProcessor(
        images, tokenizer, patch_size=STRIDE, vision_feature_select_strategy="full", chat_template=TEMPLATE
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> FastVlmForConditionalGeneration:
    """Build a model of some 6 M random weights."""
    special = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    text = LlamaConfig(
        hidden_size=192, intermediate_size=512, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=6,
        vocab_size=len(tokenizer), max_position_embeddings=512, tie_word_embeddings=True, **special,
    )  # fmt: skip
    vision = {
        "model_type": "timm_wrapper",
        "architecture": "convnext_atto",
        "do_pooling": False,
        "hidden_size": 320,
        "num_classes": 0,
    }
    config = FastVlmConfig(
        vision_config=vision, text_config=text, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_seq_length=(SIDE // STRIDE) ** 2, tie_word_embeddings=True, **special,
    )  # fmt: skip
    model = FastVlmForConditionalGeneration(config)
    model.generation_config.update(eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
    return model


class Batches(IterableDataset):
    """Endless batches: (concepts, pattern, colour, large, describe ids and labels, fuse ids and labels).

    The first ``describe`` rows describe a picture, the other rows fuse texts.
    """

    def __init__(self, concept_names: list[str], words: list[str], bpe, describe: int, fuse: int, seed: int):
        self.names, self.words, self.bpe, self.describe, self.fuse, self.seed = (
            concept_names,
            words,
            bpe,
            describe,
            fuse,
            seed,
        )
        self.id = {token: bpe.token_to_id(token) for token in SPECIAL}

    def __iter__(self):
        seed = self.seed * 1000 + (get_worker_info().id if get_worker_info() else 0)
        rng, wording = np.random.default_rng(seed), Wording(self.words, seed)
        n = self.describe + self.fuse
        while True:
            concepts = rng.integers(len(self.names), size=n)
            pattern, colour = rng.integers(len(PATTERN_WORDS), size=n), rng.integers(len(COLOUR_WORDS), size=n)
            large = rng.random(n) < 0.5
            pairs = []
            for row, (c, p, k) in enumerate(zip(concepts, pattern, colour, strict=True)):
                shown = (self.names[c], PATTERN_WORDS[p], COLOUR_WORDS[k], bool(large[row]))
                if row < self.describe:
                    pairs.append((wording.rng.choice(DESCRIBE), caption(*shown)))
                else:
                    pairs.append(exercise(wording, self.names, *shown))
            halves = self.padded(pairs[: self.describe]), self.padded(pairs[self.describe :])
            yield *(torch.from_numpy(a) for a in (concepts, pattern, colour, large)), *halves

    def padded(self, pairs: list[tuple[str, str]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return right-padded ids and labels (-100 outside the answer), both (n, longest) int64."""
        i = self.id
        asked = [e.ids for e in self.bpe.encode_batch([a for a, _ in pairs])]
        answers = [[*e.ids, i["<end>"]] for e in self.bpe.encode_batch([b for _, b in pairs])]
        heads = [[i["<user>"]] + [i["<image>"]] * (SIDE // STRIDE) ** 2 + a + [i["<assistant>"]] for a in asked]
        longest = max(len(h) + len(a) for h, a in zip(heads, answers, strict=True))
        ids, labels = [], []
        for h, a in zip(heads, answers, strict=True):
            gap = longest - len(h) - len(a)
            ids.append(h + a + [0] * gap)
            labels.append([-100] * len(h) + a + [-100] * gap)
        return torch.tensor(ids), torch.tensor(labels)


def answer_loss(
    model: torch.nn.Module, features: torch.Tensor, ids: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return the mean cross-entropy of the answers' tokens; ``features`` (n, tokens, d) replace the image tokens."""
    embeds = model.get_input_embeddings()(ids)
    place = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
    embeds = embeds.masked_scatter(place, features.to(embeds.dtype))
    hidden = model.model.language_model(inputs_embeds=embeds).last_hidden_state[:, :-1]
    wanted = labels[:, 1:] != -100  # right padding under a causal mask needs no attention mask
    return F.cross_entropy(model.lm_head(hidden[wanted]).float(), labels[:, 1:][wanted])


def train(args: argparse.Namespace) -> None:
    """Train for the given seconds or steps; write the averaged weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    concept_names = names()
    words = vocabulary(concept_names)
    processor = AutoProcessor.from_pretrained(args.resume) if args.resume else build_processor(words, concept_names)
    processor.save_pretrained(args.out)
    model = build_model(processor.tokenizer)
    if args.resume:
        model = FastVlmForConditionalGeneration.from_pretrained(args.resume, dtype=torch.float32)
    model.to(device).train()
    head = torch.nn.Linear(320, len(concept_names)).to(device)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2] + list(head.parameters()), "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=device == "cuda")
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998))
    painter = Painter(pictures(), SIDE, device)
    data = Batches(concept_names, words, processor.tokenizer.backend_tokenizer, args.describe, args.fuse, args.seed)
    loader = iter(
        DataLoader(data, batch_size=None, num_workers=args.workers, prefetch_factor=4 if args.workers else None)
    )
    started, step, done = time.time(), 0, 0.0
    while done < 1:
        done = max((time.time() - started) / args.seconds, step / args.steps if args.steps else 0)
        rate = args.lr * min(1, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * min(1, done)) + 1e-3)
        for group in optimizer.param_groups:
            group["lr"] = rate
        concepts, pattern, colour, large, described, combined = next(loader)
        concepts, pattern, colour, large = (t.to(device, non_blocking=True) for t in (concepts, pattern, colour, large))
        views = painter.degrade(painter.paint(concepts, pattern, colour, large)) * 2 - 1
        with torch.autocast(device, torch.bfloat16):
            seen = model.model.vision_tower(views.contiguous(memory_format=torch.channels_last)).last_hidden_state
            features = model.model.multi_modal_projector(seen.flatten(2).transpose(1, 2))
            told = answer_loss(model, features[: args.describe], *(t.to(device) for t in described))
            joined = answer_loss(model, features[args.describe :], *(t.to(device) for t in combined))
            kind = F.cross_entropy(
                head(F.layer_norm(seen.mean((2, 3)), (320,))).float(), concepts, label_smoothing=0.05
            )
        loss = told + args.fusing * joined + args.classes * (1 - done) * kind
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)
        if step % 100 == 0:
            losses = f"describe {told.item():.3f} fuse {joined.item():.3f} class {kind.item():.3f}"
            print(f"captioner {step} {time.time() - started:.0f}s {losses}", flush=True)
        step += 1
    average.module.half().cpu().save_pretrained(args.out)
    print(f"captioner: {step} steps of {args.describe} + {args.fuse} in {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: by time alone)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models" / "captioner")
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--describe", type=int, default=512, help="rows a batch that describe")
    parser.add_argument("--fuse", type=int, default=256, help="rows a batch that combine")
    parser.add_argument("--fusing", type=float, default=1.0, help="weight of the combining loss")
    parser.add_argument("--classes", type=float, default=0.5, help="weight of the class loss, falling to 0")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=12)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
