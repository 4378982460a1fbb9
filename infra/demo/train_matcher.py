"""Train the demo's matching model: a vision-language model that says whether a text names what a picture shows.

    .venv/bin/python infra/demo/train_matcher.py --out infra/demo/models/matcher [--features FILE]

It sees by the CLIP's frozen ConvNeXt, because a captioner's own tower repeats the captioner's mistakes, and reads by
the first layers of the captioner's language model. A projector fitted first makes the CLIP's features what that model
knows from its own tower. The matcher is asked the question of the score ``itm`` and answers "yes" or "no". A text is
right if it names the picture's concept, whatever else it names and whatever it says of colour and size: that is what
the world's truth records. Wrong texts name a concept whose pictures look like this one (three of four), any other, or
none; nothing is right of a bare background. On one thread the same seed, pictures and steps give the same weights.
"""

import argparse
import copy
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import torch
import torch.nn.functional as F
from canvas import COLOUR_WORDS, PATTERN_WORDS, Painter, Signs
from captions import caption, fused, sign_caption
from safetensors.torch import load_file
from sheets import names, pictures
from signs import phrases
from train_captioner import SIDE, STRIDE
from transformers import AutoProcessor, FastVlmForConditionalGeneration
from wording import Wording, vocabulary

from pairmill.ops.models.matching.yes_or_no import QUESTION, answer_tokens

MODELS = Path(__file__).parent / "models"
GROUND = -1  # concept of a bare background; the phrase k is the concept SIGN - k
SIGN = -2
TRUNK = "visual.trunk."  # prefix of the tower's weights in open_clip's file
FOES = 24  # concepts that look most like a picture's own
TEXTS = 4  # of one picture in a batch, half of them right where any can be


@dataclass
class Seen:
    """Painted pictures as the towers see them, with what they show.

    ``features`` (n, 9, 320) fp16 are of the CLIP's tower, ``known`` of the captioner's. ``concepts`` (n,) int64 holds
    GROUND and SIGN - k too; ``how`` (n, 3) int64 is pattern, colour and whether large.
    """

    features: torch.Tensor
    known: torch.Tensor
    concepts: torch.Tensor
    how: torch.Tensor


@torch.no_grad()
def look(tower: torch.nn.Module, captioners: torch.nn.Module, n: int, seed: int) -> Seen:
    """Paint ``n`` glyphs, n / 12 signs and n / 12 backgrounds, and run both towers on them."""
    torch.manual_seed(seed)
    painter, sign_painter = Painter(pictures(), SIDE, "cpu"), Signs(phrases(), SIDE, "cpu", seed)
    order = torch.cat([torch.randperm(len(names())) for _ in range(-(-n // len(names())))])[:n]
    features, known, concepts, how = [], [], [], []
    for mine in order.split(48):
        pattern, colour = (torch.randint(len(words), (len(mine),)) for words in (PATTERN_WORDS, COLOUR_WORDS))
        large, spoken = torch.rand(len(mine)) < 0.5, torch.randint(len(phrases()), (4,))
        grounds = [torch.randint(len(words), (4,)) for words in (PATTERN_WORDS, COLOUR_WORDS)]
        clean = [painter.paint(mine, pattern, colour, large), sign_painter.signs(spoken), sign_painter.bare(*grounds)]
        views = (painter.degrade(torch.cat(clean)) * 2 - 1).contiguous(memory_format=torch.channels_last)
        for seen, by in ((features, tower), (known, captioners)):
            seen.append(by(views).last_hidden_state.flatten(2).transpose(1, 2).half())
        concepts += [mine, SIGN - spoken, torch.full((4,), GROUND)]
        shown = torch.stack([pattern, colour, large.long()], 1)
        how += [shown, torch.zeros(8, 3, dtype=torch.int64)]
    return Seen(*map(torch.cat, (features, known, concepts, how)))


def lookalikes(seen: Seen, n_concepts: int) -> torch.Tensor:
    """Return for each picture the concepts, its own left out, whose mean features are the nearest, (n, FOES).

    Half of them are those by the one tower, half those by the other.
    """
    glyphs, foes = seen.concepts >= 0, []
    for features in (seen.features, seen.known):
        pooled = F.normalize(features.float().mean(1), dim=-1)
        pooled = F.normalize(pooled - pooled[glyphs].mean(0), dim=-1)
        means = torch.zeros(n_concepts, pooled.shape[1]).index_add_(0, seen.concepts[glyphs], pooled[glyphs])
        likeness = pooled @ F.normalize(means, dim=-1).T
        likeness[glyphs.nonzero()[:, 0], seen.concepts[glyphs]] = -1
        foes.append(likeness.topk(FOES // 2).indices)
    return torch.cat(foes, 1)


def fit_projector(model: FastVlmForConditionalGeneration, seen: Seen, steps: int) -> None:
    """Train the projector to make of the CLIP's features what it makes of the captioner's, by the mean square."""
    projector = model.model.multi_modal_projector
    with torch.no_grad():
        wanted = projector(seen.known.float())
    optimizer = torch.optim.AdamW(projector.parameters(), lr=2e-3)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / steps)
        some = torch.randint(len(wanted), (128,))
        loss = F.mse_loss(projector(seen.features[some].float()), wanted[some])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"projector: mean square {loss.item():.4f} of {wanted.var().item():.4f}", flush=True)


class Texts:
    """Right and wrong texts of pictures, from one ``random.Random``."""

    def __init__(self, concept_names: list[str], words: list[str], seed: int):
        self.names, self.said, self.wording = concept_names, phrases(), Wording(words, seed)
        self.rng = self.wording.rng

    def of(self, concept: int, how: list[int], foes: list[int], right: bool) -> str:
        """Return a text that names the concept, or one that does not; ``right`` is not asked of a background."""
        foe = self.names[self.rng.choice(foes) if self.rng.random() < 0.75 else self.rng.randrange(len(self.names))]
        if concept < 0:
            return self._sign(foe) if right else self._two(foe, "", how)
        name = self.names[concept]
        if right:
            return self._two(name, foe if self.rng.random() < 0.4 else name, how)
        if foe == name or self.rng.random() < 0.06:
            return self._sign(foe if foe != name else "")
        other = self.names[self.rng.choice(foes)] if self.rng.random() < 0.4 else foe
        return self._two(foe, other if self.rng.random() < 0.8 else "", how)

    def _two(self, name: str, other: str, how: list[int]) -> str:
        """Return a caption or a sentence about ``name``, or both fused in either order, the second about ``other``."""
        rng, shown = self.rng, self._shown(how)
        draw = rng.random()
        if draw < 0.25:
            return caption(name, *shown)
        if draw < 0.45:
            return self.wording.about(name, *shown)
        first, second = (name, other) if rng.random() < 0.5 else (other, name)
        sentence = self.wording.about(first, *shown) if first else self.wording.nothing()
        return fused(sentence, caption(second, *shown)) if second else sentence

    def _sign(self, name: str) -> str:
        """Return a caption of a sign, sometimes fused with a sentence about ``name``."""
        said = sign_caption(self.rng.choice(self.said))
        if self.rng.random() < 0.5:
            return said
        sentence = self.wording.about(name, *self._shown([0, 0, 0])) if name else self.wording.nothing()
        return fused(sentence, said)

    def _shown(self, how: list[int]) -> tuple[str, str, bool]:
        """Return background and size of the picture, each word another one for one text in five."""
        rng = self.rng
        pattern, colour = (
            words[k if rng.random() < 0.8 else rng.randrange(len(words))]
            for words, k in zip((PATTERN_WORDS, COLOUR_WORDS), how, strict=False)
        )
        return pattern, colour, bool(how[2]) if rng.random() < 0.8 else not how[2]


def batches(seen: Seen, which: torch.Tensor, texts: Texts, encode: Callable, rows: int) -> Iterator[tuple]:
    """Yield endless batches of about ``rows`` questions of similar length.

    Each is (index of the picture, token ids padded on the right, index of the last token, whether the text is right).
    """
    foes, concepts, how = lookalikes(seen, len(texts.names)).tolist(), seen.concepts.tolist(), seen.how.tolist()
    while True:
        drawn = []
        for k in texts.rng.sample(which.tolist(), 4 * rows // TEXTS):
            for n in range(TEXTS):
                right = n % 2 == 0 and concepts[k] != GROUND
                drawn.append((k, encode(texts.of(concepts[k], how[k], foes[k], right)), right))
        drawn.sort(key=lambda row: len(row[1]))
        groups = [drawn[at : at + rows] for at in range(0, len(drawn), rows)]
        texts.rng.shuffle(groups)
        for group in groups:
            longest = max(len(ids) for _, ids, _ in group)
            ids = torch.tensor([ids + [0] * (longest - len(ids)) for _, ids, _ in group])
            last = torch.tensor([len(ids) - 1 for _, ids, _ in group])
            yield torch.tensor([k for k, *_ in group]), ids, last, torch.tensor([float(right) for *_, right in group])


def asked(model: FastVlmForConditionalGeneration, features: torch.Tensor, ids: torch.Tensor, last: torch.Tensor,
          answers: tuple[list[int], list[int]]) -> torch.Tensor:  # fmt: skip
    """Return the log odds of "yes" against "no", (n,), of questions about pictures of ``features`` (n, 9, 320)."""
    embeds = model.get_input_embeddings()(ids)
    place = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
    embeds = embeds.masked_scatter(place, model.model.multi_modal_projector(features))
    hidden = model.model.language_model(inputs_embeds=embeds).last_hidden_state[torch.arange(len(ids)), last]
    yes, no = (F.linear(hidden, model.lm_head.weight[tokens]).logsumexp(-1) for tokens in answers)
    return yes - no


def train(args: argparse.Namespace) -> None:
    """Train for the given steps, write the model, and count its right answers on pictures held out."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names = names()
    tokenizer = AutoProcessor.from_pretrained(args.captioner).tokenizer
    answers = answer_tokens(tokenizer)
    model = FastVlmForConditionalGeneration.from_pretrained(args.captioner, dtype=torch.float32)
    tower = model.model.vision_tower
    captioners = copy.deepcopy(tower)
    weights = load_file(args.clip / "open_clip_model.safetensors")
    trunk = {name.removeprefix(TRUNK): each.float() for name, each in weights.items() if name.startswith(TRUNK)}
    tower.timm_model.load_state_dict(trunk)
    if args.features and args.features.exists():
        seen = Seen(**torch.load(args.features, weights_only=True))
    else:
        seen = look(tower, captioners, args.pictures, args.seed)
        if args.features:
            torch.save(vars(seen), args.features)
    fit_projector(model, seen, args.fit)
    language = model.model.language_model
    del language.layers[args.layers :]
    model.config.text_config.num_hidden_layers = args.layers
    model.requires_grad_(False)
    for part in (language, model.model.multi_modal_projector):
        part.requires_grad_(True).train()
    taught = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(taught, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.02)
    texts = Texts(concept_names, vocabulary(concept_names), args.seed)
    head = "<user>" + "<image>" * (SIDE // STRIDE) ** 2

    def encode(text: str) -> list[int]:
        return tokenizer.backend_tokenizer.encode(f"{head}{QUESTION.format(text=text)}<assistant>").ids

    held = torch.arange(len(seen.concepts)) % 20 == 0
    data = batches(seen, (~held).nonzero()[:, 0], texts, encode, args.rows)
    started, step, done, mean = time.process_time(), 0, 0.0, 0.7
    while done < 1:
        done = (step + 1) / args.steps
        rate = args.lr * min(1, (step + 1) / 40) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = rate
        which, ids, last, right = next(data)
        loss = F.binary_cross_entropy_with_logits(asked(model, seen.features[which].float(), ids, last, answers), right)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(taught, 1.0)
        optimizer.step()
        mean += 0.03 * (loss.item() - mean)
        if step % 50 == 0 or done == 1:
            print(f"matcher {step} {time.process_time() - started:.0f} CPU s loss {mean:.4f}", flush=True)
        step += 1
    model.eval().half().save_pretrained(args.out)
    for file in (f for form in ("*token*.json", "proc*.json", "*.jinja") for f in args.captioner.glob(form)):
        shutil.copy(file, args.out)
    model.float()
    unseen = batches(seen, held.nonzero()[:, 0], texts, encode, 64)
    with torch.no_grad():
        tried = [
            (asked(model, seen.features[k].float(), ids, last, answers), y) for k, ids, last, y in islice(unseen, 8)
        ]
    odds, right = (torch.cat(each) for each in zip(*tried, strict=True))
    share = ((odds > 0) == (right > 0.5)).float().mean()
    print(
        f"matcher: {step} steps, {time.process_time() - started:.0f} CPU s, {share:.3f} of {len(odds)} right",
        flush=True,
    )


def main() -> None:
    """Parse the options and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--rows", type=int, default=64, help="questions a batch")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--layers", type=int, default=2, help="layers of the captioner's language model to keep")
    parser.add_argument("--pictures", type=int, default=6144, help="painted glyphs; a sixth as many have none")
    parser.add_argument("--features", type=Path, default=None, help="file to keep what the tower sees of them")
    parser.add_argument("--clip", type=Path, default=MODELS / "clip", help="whose tower to see by")
    parser.add_argument("--captioner", type=Path, default=MODELS / "captioner", help="whose language to read by")
    parser.add_argument("--fit", type=int, default=400, help="steps of 128 pictures that fit the projector")
    parser.add_argument("--out", type=Path, default=MODELS / "matcher")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=18)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
