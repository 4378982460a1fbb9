"""Teach the demo's captioner to recognise pictures of text.

    .venv/bin/python infra/demo/teach_captioner.py --steps 160 --out infra/demo/models/captioner [--captioner DIR]

The vision tower stays frozen: trained too, it named 8 % fewer glyphs. The language model is trained, and keeps its
descriptions of glyphs and its combined texts. The model does not read: it says that there is a sign, and guesses the
phrase. On one thread the same seed and steps give the same weights.
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
GLYPHS, GROUNDS, SIGNS = 48, 16, 6  # pictures a batch
COMBINED = 4  # glyphs a batch that also have a fuse exercise


def look(model: FastVlmForConditionalGeneration, views: torch.Tensor) -> torch.Tensor:
    """Return the language model's picture inputs, (n, 9, 192), for pictures (n, 3, 96, 96) in -1..1."""
    seen = model.model.vision_tower(views.contiguous(memory_format=torch.channels_last)).last_hidden_state
    return model.model.multi_modal_projector(seen.flatten(2).transpose(1, 2))


def answer_scores(
    model: FastVlmForConditionalGeneration, features: torch.Tensor, ids: torch.Tensor, labels: torch.Tensor
) -> torch.Tensor:
    """Return log probabilities of the answers' tokens, (tokens of all answers, vocabulary)."""
    embeds = model.get_input_embeddings()(ids)
    place = (ids == model.config.image_token_id)[..., None].expand_as(embeds)
    hidden = model.model.language_model(inputs_embeds=embeds.masked_scatter(place, features)).last_hidden_state[:, :-1]
    return model.lm_head(hidden[labels[:, 1:] != -100]).log_softmax(-1)


def old(asked: tuple, joined: tuple) -> tuple:
    """Return the rows whose answers must stay as before, and their number: of descriptions and of combinations."""
    return (GLYPHS + GROUNDS, asked), (COMBINED, joined)


def teach(args: argparse.Namespace) -> None:
    """Train the language model on signs, with a penalty on changes of its other answers."""
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    concept_names, said = names(), phrases()
    tokenizer = AutoTokenizer.from_pretrained(args.captioner)
    model = FastVlmForConditionalGeneration.from_pretrained(args.captioner, dtype=torch.float32).train()
    teacher = FastVlmForConditionalGeneration.from_pretrained(args.captioner, dtype=torch.float32).eval()
    model.model.vision_tower.eval().requires_grad_(False)
    model.model.multi_modal_projector.requires_grad_(False)
    taught = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(taught, lr=args.lr, betas=(0.9, 0.98), weight_decay=0.0)
    painter, sign_painter = Painter(pictures(), SIDE, "cpu"), Signs(said, SIDE, "cpu", args.seed)
    words = vocabulary(concept_names)
    wording, texts = Wording(words, args.seed), Batches(concept_names, words, tokenizer.backend_tokenizer, 0, 0, 0)
    rng, started = wording.rng, time.process_time()
    for step in range(args.steps):
        rate = args.lr * min(1, (step + 1) / 20) * (0.5 + 0.5 * math.cos(math.pi * step / args.steps))
        for group in optimizer.param_groups:
            group["lr"] = rate
        concepts, shown = torch.randint(len(concept_names), (GLYPHS,)), torch.randint(len(said), (SIGNS,))
        pattern, colour = (torch.randint(len(w), (GLYPHS + GROUNDS,)) for w in (PATTERN_WORDS, COLOUR_WORDS))
        large = torch.rand(GLYPHS) < 0.5
        glyphs = painter.paint(concepts, pattern[:GLYPHS], colour[:GLYPHS], large)
        bare = sign_painter.bare(pattern[GLYPHS:], colour[GLYPHS:])
        views = painter.degrade(torch.cat([glyphs, bare, sign_painter.signs(shown)])) * 2 - 1
        how = [
            (concept_names[c], PATTERN_WORDS[p], COLOUR_WORDS[k], b)
            for c, p, k, b in zip(
                *(t.tolist() for t in (concepts, pattern[:GLYPHS], colour[:GLYPHS], large)), strict=True
            )
        ]
        # The model names a glyph on a bare background too, as before; any name serves to compare with the teacher.
        things = [caption(rng.choice(concept_names), "plain", "red", False) for _ in range(GROUNDS)]
        answers = [caption(*each) for each in how] + things + [sign_caption(said[k]) for k in shown.tolist()]
        asked = texts.padded([(rng.choice(DESCRIBE), answer) for answer in answers])
        joined = texts.padded([exercise(wording, concept_names, *each) for each in how[:COMBINED]])
        with torch.no_grad():
            features = look(model, views)
            knew = [answer_scores(teacher, features[:n], *(t[:n] for t in rows)) for n, rows in old(asked, joined)]
        says = [answer_scores(model, features[:n], *(t[:n] for t in rows)) for n, rows in old(asked, joined)]
        far = [F.kl_div(*pair, reduction="batchmean", log_target=True) for pair in zip(says, knew, strict=True)]
        kept = torch.stack(far).sum()
        told = answer_loss(model, features[GLYPHS + GROUNDS :], *(t[GLYPHS + GROUNDS :] for t in asked))
        loss = told + args.keep * kept
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 20 == 0 or step == args.steps - 1:
            losses = f"signs {told.item():.3f} kept {kept.item():.4f}"
            print(f"captioner {step} {time.process_time() - started:.0f} CPU s {losses}", flush=True)
    model.eval().half().save_pretrained(args.out)
    for file in (
        *args.captioner.glob("*token*.json"),
        *args.captioner.glob("proc*.json"),
        *args.captioner.glob("*.jinja"),
    ):
        if args.out.resolve() != args.captioner.resolve():
            shutil.copy(file, args.out)


def main() -> None:
    """Parse the options and teach the captioner."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=110)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--keep", type=float, default=6, help="weight of saying of glyphs what was said before")
    parser.add_argument("--captioner", type=Path, default=MODEL, help="the captioner whose sight is kept")
    parser.add_argument("--out", type=Path, default=MODEL)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=17)
    teach(parser.parse_args())


if __name__ == "__main__":
    main()
