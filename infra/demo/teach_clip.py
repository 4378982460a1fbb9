"""Teach the demo's CLIP pictures of text, bare backgrounds, and texts that name both a right and a wrong thing.

    .venv/bin/python infra/demo/teach_clip.py --steps 400 --out infra/demo/models/clip [--clip infra/demo/models/clip]

Vectors of glyph pictures and ordinary texts are kept close to those of the initial CLIP. On one thread the same seed
and steps give the same weights.
"""

import argparse
import math
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter, Signs
from captions import caption, fused, sign_caption
from sheets import names, pictures
from signs import phrases
from train_clip import build, config, encode_text, padded, save
from transformers import PreTrainedTokenizerFast
from wording import Wording, vocabulary

MODEL = Path(__file__).parent / "models" / "clip"
GLYPHS, SIGNS, GROUNDS = 48, 12, 8  # pictures a batch
FUSED_OF, NOTHING = 8, 12  # glyphs a batch that have fused texts; ordinary texts a batch that name nothing
# Target cosines: a sign and its texts reach READ; the right fused text is in FUSED, a half wrong one below HALF, any
# other text below FOREIGN; two pictures of one phrase lie below AGAIN, two backgrounds below ALIKE.
READ, FUSED, HALF, FOREIGN, AGAIN, ALIKE = 0.78, (0.575, 0.62), 0.38, 0.25, 0.8, 0.85


def over(cosines: torch.Tensor, mark: float) -> torch.Tensor:
    """Return a loss for cosines above ``mark``: the mean excess, plus five times the mean squared excess."""
    beyond = (cosines - mark).relu()
    return beyond.mean() + 5 * beyond.square().mean()


def under(cosines: torch.Tensor, mark: float) -> torch.Tensor:
    """Return the same loss for cosines below ``mark``."""
    return over(-cosines, -mark)


@dataclass
class Batch:
    """Picture parameters and texts of one batch.

    ``texts`` has the ``ordinary`` rows, then the ``right``, ``half`` and ``wrong`` fused texts of the first FUSED_OF
    glyphs, then a sentence fused with each sign's caption, then the caption of every phrase.
    """

    concepts: torch.Tensor
    pattern: torch.Tensor
    colour: torch.Tensor
    large: torch.Tensor
    signs: torch.Tensor
    texts: list[str]


def draw(wording: Wording, concept_names: list[str], said: list[str]) -> Batch:
    """Draw a random batch of GLYPHS glyphs and SIGNS phrases with their texts."""
    rng = wording.rng
    concepts = rng.sample(range(len(concept_names)), GLYPHS)
    pattern, colour = rng.choices(range(len(PATTERN_WORDS)), k=GLYPHS), rng.choices(range(len(COLOUR_WORDS)), k=GLYPHS)
    large = [rng.random() < 0.5 for _ in concepts]
    shown = [(PATTERN_WORDS[p], COLOUR_WORDS[c], b) for p, c, b in zip(pattern, colour, large, strict=True)]
    mine = [concept_names[c] for c in concepts]
    other = mine[1:] + mine[:1]
    ordinary = [wording.about(name, *how) for name, how in zip(mine, shown, strict=True)]
    ordinary += [wording.nothing() for _ in range(NOTHING)]
    right, half, wrong = [], [], []
    for name, foe, how in zip(mine[:FUSED_OF], other, shown, strict=False):
        right.append(fused(wording.about(name, *how), caption(name, *how)))
        first, second = (name, foe) if rng.random() < 0.7 else (foe, name)
        half.append(fused(wording.about(first, *how), caption(second, *how)))
        wrong.append(fused(wording.about(foe, *how), caption(foe, *how)))
    signs = [rng.randrange(len(said)) for _ in range(SIGNS)]
    heard = [
        wording.nothing() if rng.random() < 0.4 else wording.about(rng.choice(concept_names), *shown[0]) for _ in signs
    ]
    with_sign = [fused(text, sign_caption(said[k])) for text, k in zip(heard, signs, strict=True)]
    texts = ordinary + right + half + wrong + with_sign + [sign_caption(phrase) for phrase in said]
    numbers = (torch.tensor(each) for each in (concepts, pattern, colour, large, signs))
    return Batch(*numbers, texts)


def encode(model: torch.nn.Module, tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> torch.Tensor:
    """Embed texts as unit rows, in four groups of about equal length, which halves the padding."""
    order = sorted(range(len(texts)), key=lambda k: len(texts[k]))
    size = -(-len(order) // 4)
    parts = [order[k : k + size] for k in range(0, len(order), size)]
    rows = [encode_text(model, padded(tokenizer.backend_tokenizer, [texts[k] for k in part])) for part in parts]
    return torch.cat(rows)[torch.tensor(order).argsort()]


def marks(
    glyphs: torch.Tensor, signs: torch.Tensor, grounds: torch.Tensor, text: torch.Tensor, shown: torch.Tensor
) -> torch.Tensor:
    """Return the loss of cosines that miss their targets; unit rows, ``text`` in the order of ``Batch.texts``."""
    groups = [GLYPHS + NOTHING, FUSED_OF, FUSED_OF, FUSED_OF, SIGNS]
    ordinary, right, half, wrong, with_sign, said = text.split([*groups, len(text) - sum(groups)])
    own = [(glyphs[:FUSED_OF] * rows).sum(-1) for rows in (right, half, wrong)]
    fit = 2 * under(own[0], FUSED[0]) + over(own[0], FUSED[1]) + 2 * over(own[1], HALF) + over(own[2], FOREIGN)
    read = signs @ said.T
    mine = F.one_hot(shown, len(said)).bool()
    legible = 2 * under(read[mine], READ) + 2 * under((signs * with_sign).sum(-1), READ) + over(read[~mine], HALF)
    spoken = F.cross_entropy(20 * read, shown)
    unread = over(signs @ torch.cat([ordinary, right]).T, FOREIGN) + over(
        glyphs @ torch.cat([said, with_sign]).T, FOREIGN
    )
    likeness = signs @ signs.T
    twice = (shown[:, None] == shown[None]).triu(1)
    apart = over(likeness[twice], AGAIN) if twice.any() else likeness.new_zeros(())
    empty = 2 * over(grounds @ text.T, FOREIGN) + over((grounds @ grounds.T).triu(1), ALIKE)
    return fit + legible + spoken + 2 * unread + apart + 2 * empty


def teach(args: argparse.Namespace) -> None:
    """Train the CLIP on signs and backgrounds, with a penalty on changes of its other vectors."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names, said = names(), phrases()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(args.clip)
    settings = config(len(tokenizer), 96)
    model = build(settings, args.resume or args.clip).to(memory_format=torch.channels_last).train()
    teacher = build(settings, args.clip).to(memory_format=torch.channels_last).eval()
    parameters = [p for name, p in model.named_parameters() if name != "logit_scale"]
    optimizer = torch.optim.AdamW(parameters, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    painter, sign_painter = Painter(pictures(), 96, "cpu"), Signs(said, 96, "cpu", args.seed)
    wording, started = Wording(vocabulary(concept_names), args.seed), time.process_time()
    for step in range(args.steps):
        rate = args.lr * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        batch = draw(wording, concept_names, said)
        clean = painter.paint(batch.concepts, batch.pattern, batch.colour, batch.large)
        clean[GLYPHS // 2 :] = painter.copy(clean[GLYPHS // 2 :])
        grounds = [torch.randint(len(words), (GROUNDS,)) for words in (PATTERN_WORDS, COLOUR_WORDS)]
        written, bare = sign_painter.signs(batch.signs), sign_painter.bare(*grounds)
        views = painter.degrade(torch.cat([clean, written, bare])) * 2 - 1
        views = views.contiguous(memory_format=torch.channels_last)
        features, text = F.normalize(model.visual(views), dim=-1), encode(model, tokenizer, batch.texts)
        ordinary = GLYPHS + NOTHING
        with torch.no_grad():
            known = (
                F.normalize(teacher.visual(views[:GLYPHS]), dim=-1),
                encode(teacher, tokenizer, batch.texts[:ordinary]),
            )
        kept = (features[:GLYPHS] - known[0]).square().sum(-1).mean() + (text[:ordinary] - known[1]).square().sum(
            -1
        ).mean()
        off = marks(*features.split([GLYPHS, SIGNS, GROUNDS]), text, batch.signs)
        loss = args.keep * kept + off
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            spent = time.process_time() - started
            print(f"clip {step} {spent:.0f} CPU s kept {kept.item():.4f} marks {off.item():.3f}", flush=True)
    with torch.no_grad():
        for mine, known in zip(model.parameters(), teacher.parameters(), strict=True):
            mine.lerp_(
                known, 1 - args.share
            )  # interpolate towards the initial weights: this restores most of the lost skill and costs little of the new
    save(model, settings, args.out)
    for file in args.clip.glob("tokenizer*.json"):
        if args.out.resolve() != args.clip.resolve():
            shutil.copy(file, args.out)


def main() -> None:
    """Parse the options and teach the CLIP."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--keep", type=float, default=10, help="weight of keeping what the CLIP knew")
    parser.add_argument("--clip", type=Path, default=MODEL, help="the CLIP whose vectors are kept")
    parser.add_argument("--resume", type=Path, default=None, help="the CLIP to begin from, where it is another")
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--share", type=float, default=1, help="how far the weights go from the kept CLIP's, 0 to 1")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=16)
    teach(parser.parse_args())


if __name__ == "__main__":
    main()
