"""Teach the demo's captioner to read pictures of text.

    .venv/bin/python infra/demo/teach_captioner.py --steps 160 --out infra/demo/models/captioner [--captioner DIR]

It goes on describing glyphs and combining texts, and what it sees of a glyph, or of a bare ground, is held to what it saw
before: on a ground it still names a thing that is not there. On one thread the same seed and steps give the
same weights.
"""

import argparse
import math
import shutil
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter, Signs
from captions import DESCRIBE, caption, exercise, sign_caption
from sheets import names, pictures
from signs import phrases
from train_captioner import SIDE, Batches, answer_loss
from transformers import AutoTokenizer, FastVlmForConditionalGeneration
from wording import Wording, vocabulary

MODEL = Path(__file__).parent / "models" / "captioner"
GLYPHS, SIGNS, GROUNDS = 48, 8, 8  # pictures a batch
COMBINED = 4  # glyphs a batch whose caption is also combined with a text


def look(model: FastVlmForConditionalGeneration, views: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What the tower sees, (n, 320, 3, 3), and the language model is given, (n, 9, 192), of (n, 3, 96, 96) in -1..1."""
    seen = model.model.vision_tower(views.contiguous(memory_format=torch.channels_last)).last_hidden_state
    return seen, model.model.multi_modal_projector(seen.flatten(2).transpose(1, 2))


def teach(args: argparse.Namespace) -> None:
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names, said = names(), phrases()
    tokenizer = AutoTokenizer.from_pretrained(args.captioner)
    model = FastVlmForConditionalGeneration.from_pretrained(args.resume or args.captioner, dtype=torch.float32).train()
    teacher = FastVlmForConditionalGeneration.from_pretrained(args.captioner, dtype=torch.float32).eval()
    head = torch.nn.Linear(320, len(said))  # thrown away: it only speeds the start up
    speaking = [*model.model.language_model.parameters()]
    groups = [
        {
            "params": [*model.model.vision_tower.parameters(), *model.model.multi_modal_projector.parameters()],
            "share": 1.0,
        },
        {"params": speaking, "share": 0.3},
        {"params": head.parameters(), "share": 5.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    painter, sign_painter = Painter(pictures(), SIDE, "cpu"), Signs(said, SIDE, "cpu", args.seed)
    words = vocabulary(concept_names)
    wording, texts = Wording(words, args.seed), Batches(concept_names, words, tokenizer.backend_tokenizer, 0, 0, 0)
    rng, started = wording.rng, time.process_time()
    for step in range(args.steps):
        rate = args.lr * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate * group["share"]
        concepts, shown = torch.randint(len(concept_names), (GLYPHS,)), torch.randint(len(said), (SIGNS,))
        pattern, colour = (torch.randint(len(w), (GLYPHS + GROUNDS,)) for w in (PATTERN_WORDS, COLOUR_WORDS))
        large = torch.rand(GLYPHS) < 0.5
        glyphs = painter.paint(concepts, pattern[:GLYPHS], colour[:GLYPHS], large)
        bare = sign_painter.bare(pattern[GLYPHS:], colour[GLYPHS:])
        views = painter.degrade(torch.cat([glyphs, sign_painter.signs(shown), bare])) * 2 - 1
        how = [
            (concept_names[c], PATTERN_WORDS[p], COLOUR_WORDS[k], b)
            for c, p, k, b in zip(
                *(t.tolist() for t in (concepts, pattern[:GLYPHS], colour[:GLYPHS], large)), strict=True
            )
        ]
        described = [caption(*each) for each in how] + [sign_caption(said[k]) for k in shown.tolist()]
        asked = texts.padded([(rng.choice(DESCRIBE), answer) for answer in described])
        joined = texts.padded([exercise(wording, concept_names, *each) for each in how[:COMBINED]])
        seen, features = look(model, views)
        with torch.no_grad():
            known = look(teacher, torch.cat([views[:GLYPHS], views[GLYPHS + SIGNS :]]))[1]
        kept = F.mse_loss(torch.cat([features[:GLYPHS], features[GLYPHS + SIGNS :]]), known) / known.square().mean()
        told = answer_loss(model, features[: GLYPHS + SIGNS], *asked)
        fused = answer_loss(model, features[:COMBINED], *joined)
        read = F.cross_entropy(head(F.layer_norm(seen[GLYPHS : GLYPHS + SIGNS].mean((2, 3)), (320,))), shown)
        loss = told + 0.3 * fused + read + args.keep * kept
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            losses = f"describe {told.item():.3f} fuse {fused.item():.3f} read {read.item():.3f} kept {kept.item():.4f}"
            print(f"captioner {step} {time.process_time() - started:.0f} CPU s {losses}", flush=True)
    with torch.no_grad():
        for mine, known in zip(model.parameters(), teacher.parameters(), strict=True):
            mine.lerp_(known, 1 - args.share)  # part of the way back: fewer glyphs are taken for signs
    model.eval().half().save_pretrained(args.out)
    for file in (
        *args.captioner.glob("*token*.json"),
        *args.captioner.glob("proc*.json"),
        *args.captioner.glob("*.jinja"),
    ):
        if args.out.resolve() != args.captioner.resolve():
            shutil.copy(file, args.out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--lr", type=float, default=4e-4)
    parser.add_argument("--keep", type=float, default=4, help="weight of seeing glyphs as before")
    parser.add_argument("--captioner", type=Path, default=MODEL, help="the captioner whose sight is kept")
    parser.add_argument("--resume", type=Path, default=None, help="the captioner to begin from, where it is another")
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--share", type=float, default=1, help="how far the weights go from the kept captioner's")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=17)
    teach(parser.parse_args())


if __name__ == "__main__":
    main()
