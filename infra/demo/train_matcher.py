"""Train the demo's matching model: the demo's CLIP with the pairwise sigmoid of SigLIP, which has one text per picture.

    .venv/bin/python infra/demo/train_matcher.py --out infra/demo/models/matcher [--vectors FILE]

The picture tower is the CLIP's and stays as it is, so that each painted picture is embedded once. The text tower is
trained from the CLIP's: a text belongs to each picture whose concept it names, whatever else it names and whatever it
says of colour and size. That is what the world's truth records. The CLIP itself wants a text that also names another
thing further away. Of the other pictures, those that the model finds most like the text weigh most. On one thread the
same seed, pictures and steps give the same weights.
"""

import argparse
import math
import shutil
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter, Signs
from captions import caption, fused, sign_caption
from sheets import names, pictures
from signs import phrases
from teach_clip import encode
from train_clip import build, config, save
from transformers import PreTrainedTokenizerFast
from wording import Wording, vocabulary

MODELS = Path(__file__).parent / "models"
SIDE = 96  # px of a picture
GROUND, SIGN = -1, -2  # concepts of a bare background and of a picture of text
FOES = 12  # concepts that look most like another
HARD = 24  # pictures a text that do not belong to it and weigh most
# Added to the trained bias: training shows each text the pictures that pass for its own far more often than a world
# does. With it, of the captions of seed 31 below a probability of 0.5, 93 % are wrong.
SHIFT = 3.0
SCALE, BIAS = 25.0, -10.0  # of a cosine, at the start: a cosine of 0.4 is as likely as not


@torch.no_grad()
def look(model: torch.nn.Module, n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Paint ``n`` glyphs, n / 12 signs and n / 12 backgrounds; return unit vectors (m, 256) and concepts (m,)."""
    torch.manual_seed(seed)
    painter, sign_painter = Painter(pictures(), SIDE, "cpu"), Signs(phrases(), SIDE, "cpu", seed)
    order = torch.cat([torch.randperm(len(names())) for _ in range(-(-n // len(names())))])[:n]
    vectors, concepts = [], []
    for mine in order.split(48):
        pattern, colour = (torch.randint(len(words), (len(mine),)) for words in (PATTERN_WORDS, COLOUR_WORDS))
        large, spoken = torch.rand(len(mine)) < 0.5, torch.randint(len(phrases()), (4,))
        grounds = [torch.randint(len(words), (4,)) for words in (PATTERN_WORDS, COLOUR_WORDS)]
        clean = [painter.paint(mine, pattern, colour, large), sign_painter.signs(spoken), sign_painter.bare(*grounds)]
        views = (painter.degrade(torch.cat(clean)) * 2 - 1).contiguous(memory_format=torch.channels_last)
        vectors.append(F.normalize(model.visual(views), dim=-1))
        concepts += [mine, torch.full((4,), SIGN), torch.full((4,), GROUND)]
    return torch.cat(vectors), torch.cat(concepts)


def lookalikes(vectors: torch.Tensor, concepts: torch.Tensor, n_concepts: int) -> list[list[int]]:
    """Return for each concept the FOES others whose mean vectors are the nearest."""
    glyphs = concepts >= 0
    means = torch.zeros(n_concepts, vectors.shape[1]).index_add_(0, concepts[glyphs], vectors[glyphs])
    means = F.normalize(means - means.mean(0), dim=-1)
    return (means @ means.T).fill_diagonal_(-1).topk(FOES).indices.tolist()


class Texts:
    """Texts of one or two concepts, from one ``random.Random``."""

    def __init__(self, concept_names: list[str], foes: list[list[int]], seed: int):
        self.names, self.foes, self.said = concept_names, foes, phrases()
        self.wording = Wording(vocabulary(concept_names), seed)
        self.rng = self.wording.rng

    def next(self) -> tuple[str, set[int]]:
        """Return a text and the concepts that it names: a caption, a sentence, or both as the fuser joins them."""
        rng, first = self.rng, self.rng.randrange(len(self.names))
        draw = rng.random()
        if draw < 0.2:
            return self._caption(first), {first}
        if draw < 0.35:
            return self._sentence(first), {first}
        if draw < 0.42:
            return self._caption(SIGN), {SIGN}
        second = first
        if rng.random() < 0.55:
            second = rng.choice(self.foes[first]) if rng.random() < 0.5 else rng.randrange(len(self.names))
        if draw < 0.5:
            first, second = rng.choice([(GROUND, second), (first, SIGN), (GROUND, SIGN)])
        return fused(self._sentence(first), self._caption(second)), {first, second} - {GROUND}

    def _sentence(self, concept: int) -> str:
        """Return a sentence about a concept, or about nothing."""
        return self.wording.nothing() if concept == GROUND else self.wording.about(self.names[concept], *self._shown())

    def _caption(self, concept: int) -> str:
        """Return the caption of a concept or of a sign."""
        return (
            sign_caption(self.rng.choice(self.said))
            if concept == SIGN
            else caption(self.names[concept], *self._shown())
        )

    def _shown(self) -> tuple[str, str, bool]:
        """Return a random background and size: no picture's own, so that they say nothing of what belongs together."""
        return self.rng.choice(PATTERN_WORDS), self.rng.choice(COLOUR_WORDS), self.rng.random() < 0.5


def pair_loss(logits: torch.Tensor, belongs: torch.Tensor) -> torch.Tensor:
    """Return the pairwise sigmoid loss of logits (texts, pictures): pairs that belong, the HARD others, all others."""
    near = F.softplus(-logits)[belongs].mean()
    others = F.softplus(logits).masked_fill(belongs, 0)
    return near + others.topk(HARD).values.mean() + others.mean()


def train(args: argparse.Namespace) -> None:
    """Train the text tower for the given steps and write the model."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names, tokenizer = names(), PreTrainedTokenizerFast.from_pretrained(args.clip)
    settings = config(len(tokenizer), SIDE)
    settings["model_cfg"]["init_logit_bias"] = BIAS
    model = build(settings, args.clip).to(memory_format=torch.channels_last).eval().requires_grad_(False)
    if args.vectors and args.vectors.exists():
        vectors, concepts = torch.load(args.vectors, weights_only=True)
    else:
        vectors, concepts = look(model, args.pictures, args.seed)
        if args.vectors:
            torch.save((vectors, concepts), args.vectors)
    model.logit_scale = torch.nn.Parameter(torch.tensor(math.log(SCALE)))
    model.logit_bias = torch.nn.Parameter(torch.tensor(BIAS))
    pair = [model.logit_scale, model.logit_bias]
    taught = [each for name, each in model.named_parameters() if not name.startswith("visual.")]
    for each in taught:
        each.requires_grad_(True)
    tower = [each for each in taught if not any(each is one for one in pair)]
    rates = [({"params": tower, "weight_decay": 0.01}, args.lr), ({"params": pair, "weight_decay": 0.0}, 10 * args.lr)]
    optimizer = torch.optim.AdamW([group for group, _ in rates], lr=args.lr, betas=(0.9, 0.98))
    texts = Texts(concept_names, lookalikes(vectors, concepts, len(concept_names)), args.seed)
    started, mean = time.process_time(), 0.0
    for step in range(args.steps):
        share = min(1, (step + 1) / 15) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group, (_, rate) in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * share
        written, named = zip(*(texts.next() for _ in range(args.texts)), strict=True)
        belongs = torch.stack([torch.isin(concepts, torch.tensor(sorted(each))) for each in named])
        cosines = encode(model, tokenizer, list(written)) @ vectors.T
        loss = pair_loss(model.logit_scale.exp() * cosines + model.logit_bias, belongs)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(taught, 1.0)
        optimizer.step()
        mean = loss.item() if not step else mean + 0.05 * (loss.item() - mean)
        if step % 20 == 0 or step == args.steps - 1:
            pairs = f"scale {model.logit_scale.exp().item():.1f} bias {model.logit_bias.item():.2f}"
            print(f"matcher {step} {time.process_time() - started:.0f} CPU s loss {mean:.4f} {pairs}", flush=True)
    with torch.no_grad():
        model.logit_bias += SHIFT
    save(model, settings, args.out)
    for file in args.clip.glob("tokenizer*.json"):
        shutil.copy(file, args.out)


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--texts", type=int, default=64, help="texts a batch")
    parser.add_argument("--lr", type=float, default=5e-4)
    parser.add_argument("--pictures", type=int, default=3072, help="painted glyphs; a sixth as many have none")
    parser.add_argument("--vectors", type=Path, default=None, help="file to keep the vectors of the pictures")
    parser.add_argument("--clip", type=Path, default=MODELS / "clip", help="the CLIP to begin from")
    parser.add_argument("--out", type=Path, default=MODELS / "matcher")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=18)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
