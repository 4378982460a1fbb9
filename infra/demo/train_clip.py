"""Train the demo's CLIP and write it in open_clip's ``local-dir:`` form.

    .venv/bin/python infra/demo/train_clip.py --seconds 540 --out infra/demo/models/clip [--resume infra/demo/models/clip]

There are three losses: image against text, with pairs of the same concept masked; copies of one rendering against all
other renderings, those of the same concept included; and the concept's class, by a head that is discarded and only
speeds up the start.
"""

import argparse
import json
import math
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from byte_bpe import closed_by, train_bpe
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter
from safetensors.torch import load_file, save_file
from sheets import names, pictures
from tokenizers import Tokenizer
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from transformers import PreTrainedTokenizerFast
from wording import Wording, vocabulary

MEAN, STD = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
CONTEXT, VOCABULARY = 77, 4096
COPY, OTHER = (
    0.97,
    0.75,
)  # cosine that copies of one rendering should reach, and that other renderings of the concept should not exceed


def config(vocab_size: int, image_size: int) -> dict:
    """Return open_clip's model and preprocessing settings."""
    vision = {
        "timm_model_name": "convnext_atto",
        "timm_model_pretrained": False,
        "timm_pool": "",
        "timm_proj": "linear",
    }
    text = {
        "context_length": CONTEXT,
        "vocab_size": vocab_size,
        "hf_tokenizer_name": "local",
        "width": 192,
        "heads": 3,
        "layers": 3,
    }
    return {
        "model_cfg": {"embed_dim": 256, "vision_cfg": vision | {"image_size": image_size}, "text_cfg": text},
        "preprocess_cfg": {"mean": MEAN, "std": STD, "interpolation": "bicubic", "resize_mode": "squash"},
    }


def build_tokenizer(words: list[str], concept_names: list[str]) -> PreTrainedTokenizerFast:
    """Build a lower-case BPE from concept names, 200 times each, and pseudo sentences.

    Id 0 pads, and the end token has the highest id.
    """
    wording = Wording(words, 7)
    texts = concept_names * 200 + [wording.nothing() for _ in range(60000)]
    bpe = closed_by(train_bpe(texts, VOCABULARY - 2, lowercase=True), "<start>", "<end>")
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, pad_token="<pad>", bos_token="<start>", eos_token="<end>", model_max_length=CONTEXT
    )


class Batches(IterableDataset):
    """Endless (concepts, pattern, colour, large, token ids); texts are drawn first, and pictures painted to match."""

    def __init__(self, concept_names: list[str], words: list[str], bpe, groups: int, repeat: int, seed: int):
        self.names, self.words, self.bpe, self.groups, self.repeat, self.seed = (
            concept_names,
            words,
            bpe,
            groups,
            repeat,
            seed,
        )

    def __iter__(self):
        seed = self.seed * 1000 + (get_worker_info().id if get_worker_info() else 0)
        rng, wording = np.random.default_rng(seed), Wording(self.words, seed)
        n = self.groups * self.repeat
        while True:
            concepts = np.repeat(rng.permutation(len(self.names))[: self.groups], self.repeat)
            pattern, colour = rng.integers(len(PATTERN_WORDS), size=n), rng.integers(len(COLOUR_WORDS), size=n)
            large = rng.random(n) < 0.5
            if rng.random() < 0.6:  # hard negatives: the same concept on the same kind of background, in another place
                pattern, colour = (np.repeat(a[:: self.repeat], self.repeat) for a in (pattern, colour))
            texts = [
                wording.about(self.names[c], PATTERN_WORDS[p], COLOUR_WORDS[k], bool(b))
                for c, p, k, b in zip(concepts, pattern, colour, large, strict=True)
            ]
            texts += [wording.nothing() for _ in range(n // 4)]
            yield *(torch.from_numpy(a) for a in (concepts, pattern, colour, large)), padded(self.bpe, texts)


def padded(bpe: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return ids (n, longest) int64, 0-padded, cut at CONTEXT with the end token kept."""
    ids = [e.ids if len(e.ids) <= CONTEXT else e.ids[: CONTEXT - 1] + e.ids[-1:] for e in bpe.encode_batch(texts)]
    longest = max(map(len, ids))
    return torch.tensor([row + [0] * (longest - len(row)) for row in ids])


def encode_text(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """Embed token ids by the text tower, without padding to CONTEXT: with the causal mask the result is the same."""
    x = model.token_embedding(ids) + model.positional_embedding[: ids.shape[1]]
    x = model.transformer(x, attn_mask=model.attn_mask[: ids.shape[1], : ids.shape[1]])
    x = model.ln_final(x)[torch.arange(len(ids)), ids.argmax(-1)]
    return F.normalize(x @ model.text_projection, dim=-1)


def losses(a, b, text, concepts, logit_scale, copy_scale) -> tuple[torch.Tensor, torch.Tensor]:
    """Return image-text and copy losses; a, b (n, d) are two views of n renderings, text (n + extra, d); unit rows."""
    n = len(a)
    own = torch.arange(n, device=a.device)
    same = (concepts[:, None] == concepts[None]) & ~torch.eye(n, dtype=torch.bool, device=a.device)
    logits = logit_scale * a @ text.T
    masked = logits.masked_fill(F.pad(same, (0, len(text) - n)), -1e4)
    image_text = (F.cross_entropy(masked, own) + F.cross_entropy(masked[:, :n].T, own)) / 2
    likeness = a @ b.T
    between = copy_scale * likeness
    contrast = (F.cross_entropy(between, own) + F.cross_entropy(between.T, own)) / 2
    # One cosine threshold must separate copies from equal concepts everywhere, so both have absolute targets.
    apart = torch.cat([likeness[same], (a @ a.T)[same]])
    marks = (
        (COPY - likeness.diagonal()).relu().mean()
        + 2 * (apart - OTHER).relu().mean()
        + 20 * (apart - OTHER).relu().square().mean()
    )
    return image_text, contrast + 4 * marks


def save(model: torch.nn.Module, settings: dict, out: Path) -> None:
    """Write fp16 weights, and the settings that open_clip reads."""
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        k: v.half().cpu().contiguous() if v.is_floating_point() else v.cpu() for k, v in model.state_dict().items()
    }
    save_file(weights, out / "open_clip_model.safetensors")
    (out / "open_clip_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def build(settings: dict, resume: Path | None) -> torch.nn.Module:
    """Build open_clip's model in fp32, with random weights or those of the folder ``resume``."""
    from open_clip.model import CLIP

    cfg = json.loads(json.dumps(settings["model_cfg"]))
    cfg["text_cfg"].pop("hf_tokenizer_name")
    model = CLIP(cfg["embed_dim"], cfg["vision_cfg"], cfg["text_cfg"])
    if resume:
        weights = load_file(resume / "open_clip_model.safetensors")
        model.load_state_dict({k: v.float() for k, v in weights.items()}, strict=False)
    return model


def train(args: argparse.Namespace) -> None:
    """Train for the given seconds or steps; write the averaged weights."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(args.seed)
    concept_names = names()
    words = vocabulary(concept_names)
    tokenizer = (
        PreTrainedTokenizerFast.from_pretrained(args.resume) if args.resume else build_tokenizer(words, concept_names)
    )
    tokenizer.save_pretrained(args.out)
    settings = config(len(tokenizer), args.side)
    model = build(settings, args.resume).to(device, memory_format=torch.channels_last)
    head = torch.nn.Linear(256, len(concept_names)).to(device)
    copy_log = torch.nn.Parameter(torch.tensor(math.log(20.0), device=device))
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.05},
        {"params": [p for p in model.parameters() if p.ndim < 2] + [*head.parameters(), copy_log], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), fused=device == "cuda")
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.998), use_buffers=False
    )
    painter = Painter(pictures(), args.side, device)
    data = Batches(concept_names, words, tokenizer.backend_tokenizer, args.groups, args.repeat, args.seed)
    loader = iter(
        DataLoader(data, batch_size=None, num_workers=args.workers, prefetch_factor=4 if args.workers else None)
    )
    started, step, done = time.time(), 0, 0.0
    while done < 1:
        done = max((time.time() - started) / args.seconds, step / args.steps if args.steps else 0)
        rate = args.lr * min(1, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * min(1, done)) + 1e-3)
        for group in optimizer.param_groups:
            group["lr"] = rate
        concepts, pattern, colour, large, ids = (t.to(device, non_blocking=True) for t in next(loader))
        clean = painter.paint(concepts, pattern, colour, large)
        views = torch.cat([painter.degrade(clean), painter.degrade(painter.copy(clean))]) * 2 - 1
        with torch.autocast(device, torch.bfloat16):
            features = model.visual(views.contiguous(memory_format=torch.channels_last))
            text = encode_text(model, ids)
        features, text = features.float(), text.float()
        a, b = F.normalize(features, dim=-1).chunk(2)
        scale = model.logit_scale.exp().clamp(max=100)
        image_text, copies = losses(a, b, text, concepts, scale, copy_log.exp().clamp(max=50))
        image_text = image_text + 0.3 * losses(b, a, text, concepts, scale, 1.0)[0]  # a copy still shows the concept
        kind = F.cross_entropy(head(features.chunk(2)[0]), concepts, label_smoothing=0.05)
        loss = image_text + args.copies * copies + args.classes * (1 - done) * kind
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):  # an infinite gradient would turn every weight into NaN
            optimizer.step()
        average.update_parameters(model)
        if step % 100 == 0:
            told = f"image-text {image_text.item():.3f} copies {copies.item():.3f} class {kind.item():.3f} scale {scale.item():.1f}"
            print(f"clip {step} {time.time() - started:.0f}s {told}", flush=True)
        step += 1
    save(average.module, settings, args.out)
    print(f"clip: {step} steps of {args.groups * args.repeat} in {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--steps", type=int, default=0, help="stop after so many steps (0: by time alone)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "models" / "clip")
    parser.add_argument("--resume", type=Path, default=None)
    parser.add_argument("--side", type=int, default=96)
    parser.add_argument("--groups", type=int, default=320, help="concepts in a batch")
    parser.add_argument("--repeat", type=int, default=3, help="renderings of a concept in a batch")
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--copies", type=float, default=0.5, help="weight of the copy loss")
    parser.add_argument("--classes", type=float, default=0.5, help="weight of the class loss, falling to 0")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--seed", type=int, default=11)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
