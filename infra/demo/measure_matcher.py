"""Measure the demo's matching model on texts that miss what a picture shows, beside the CLIP's cosine; print JSON.

    .venv/bin/python infra/demo/measure_matcher.py --seeds 21 22 23 24 25 --documents 128

The models alone, without Pairmill: each picture of a generated world gets the captioner's caption, and that is fused
with the picture's nearest sentence as the fuser does it. A whole run is measured by ``python -m tests.demo.mismatch``.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from captions import fused
from generate import generate
from measure import MODELS, PROMPT, caption_all, embed, load_world
from PIL import Image
from prose import Concepts
from sheets import names

from pairmill.ops.models.matching.image_text_match import ImageTextMatch

KINDS = ("good", "text", "ground")
COSINE, MATCH = 0.48, 0.5  # the demo's rule on the cosine of a fused text; "yes" is likelier than "no"
SIDE = 128  # px of a picture's shorter side, as the demo's recipe decodes it


def shown(image: Image.Image) -> np.ndarray:
    """Return the picture as the recipe decodes it, (h, w, 3) uint8."""
    scale = SIDE / min(image.size)
    return np.asarray(image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC))


def precision_recall(drops: np.ndarray, wrong: np.ndarray) -> dict[str, float]:
    """Return precision and recall of ``drops`` (n,) bool among the texts that are ``wrong`` (n,) bool."""
    hits = (drops & wrong).sum()
    return {"precision": round(hits / max(drops.sum(), 1), 4), "recall": round(hits / max(wrong.sum(), 1), 4)}


def measure(world: Path, matcher: str) -> dict:
    """Return precision and recall of both rules on fused texts and on captions."""
    rows, sentences = load_world(world, KINDS)
    pictures = [row["image"] for row in rows]
    said, _ = caption_all(MODELS / "captioner", pictures, PROMPT)
    images, texts, of_captions = embed(MODELS / "clip", pictures, [each["text"] for each in sentences], said)
    nearest = (images @ texts.T).argmax(1)
    joined = [fused(sentences[n]["text"], caption) for n, caption in zip(nearest, said, strict=True)]
    _, of_fused, _ = embed(MODELS / "clip", pictures[:1], joined, said[:1])
    model, pixels, concepts = ImageTextMatch(matcher), [shown(picture) for picture in pictures], Concepts(names())
    report: dict = {"pictures": len(rows)}
    for kind, written, vectors in (("fused", joined, of_fused), ("caption", said, of_captions)):
        wrong = np.array([concepts.missed(row, text) for row, text in zip(rows, written, strict=True)])
        cosines, scores = (images * vectors).sum(1), model({"pixels": pixels, "text": written})["itm_score"]
        found = {"wrong": int(wrong.sum()), "cosine": precision_recall(cosines < COSINE, wrong)}
        found["itm"] = precision_recall(scores < MATCH, wrong)
        levels = [precision_recall(scores <= each, wrong) for each in np.unique(scores)]
        found["itm_at_recall"] = max(
            each["precision"] for each in levels if each["recall"] >= found["cosine"]["recall"]
        )
        report[kind] = found
    return report


def main() -> None:
    """Generate each world, measure on it and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--documents", type=int, default=128)
    parser.add_argument("--matcher", default=f"open_clip:local-dir:{MODELS / 'matcher'}")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    for seed in args.seeds:
        with tempfile.TemporaryDirectory() as folder:
            generate(seed, args.documents, Path(folder))
            report = {"seed": seed, "documents": args.documents} | measure(Path(folder), args.matcher)
            print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
