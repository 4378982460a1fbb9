"""Measure the demo models on a world's truth, with the models' own libraries and none of the product's code.

    .venv/bin/python infra/demo/measure.py --world DIR [--captions 800] [--threads 2]

Prints one line of JSON: shares of pictures, and precision and recall of embedding duplicates over thresholds.
"""

import argparse
import base64
import io
import json
import re
import time
from pathlib import Path

import numpy as np
import open_clip
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from PIL import Image
from prose import Concepts
from sheets import names
from train_clip import encode_text
from transformers import AutoModelForImageTextToText, AutoProcessor

MODELS = Path(__file__).parent / "models"
THRESHOLDS = np.round(np.arange(0.88, 0.985, 0.01), 2)
PROMPT = "Describe the picture."
RULED_OUT = {"url", "emoji", "length", "boilerplate"}  # kinds of sentences dropped by a recipe's rules


def load_world(world: Path, kinds: tuple[str, ...] = ("good",)) -> tuple[list[dict], list[dict]]:
    """Return the pictures of these kinds, each with its ``image``, and the sentences that pass the rules."""
    rows = pq.read_table(world / "truth" / "pictures.parquet").to_pylist()
    rows = [row for row in rows if row["kind"] in kinds]
    embedded: dict[str, list[str]] = {}
    for row in rows:
        if row["path"]:
            data = (world / "pages" / row["path"]).read_bytes()
        else:
            if row["page"] not in embedded:
                embedded[row["page"]] = re.findall(r'<img src="([^"]*)"', (world / "pages" / row["page"]).read_text())
            data = base64.b64decode(embedded[row["page"]][row["position"]].split(",", 1)[1])
        row["image"] = Image.open(io.BytesIO(data)).convert("RGB")
    sentences = pq.read_table(world / "truth" / "sentences.parquet").to_pylist()
    return rows, [s for s in sentences if s["kind"] not in RULED_OUT and len(s["text"].split()) >= 3]


@torch.no_grad()
def embed(
    folder: Path, images: list[Image.Image], texts: list[str], prompts: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embed the pictures, the texts and the zero-shot prompts; return unit fp32 rows."""
    model, _, prepare = open_clip.create_model_and_transforms(f"local-dir:{folder.resolve()}")
    tokenize = open_clip.get_tokenizer(f"local-dir:{folder.resolve()}")
    model.eval()
    pictures = [
        model.encode_image(torch.stack([prepare(im) for im in images[k : k + 64]])) for k in range(0, len(images), 64)
    ]
    words = []
    for k in range(0, len(texts + prompts), 256):
        ids = tokenize((texts + prompts)[k : k + 256])
        words.append(
            encode_text(model, ids[:, : int((ids > 0).sum(1).max())])
        )  # without padding to 77: equal and faster
    sides = [F.normalize(torch.cat(side).float(), dim=-1).numpy() for side in (pictures, words)]
    return sides[0], sides[1][: len(texts)], sides[1][len(texts) :]


def retrieval(rows: list[dict], sentences: list[dict], images: np.ndarray, texts: np.ndarray) -> dict[str, float]:
    """Return the share of described pictures whose nearest sentence describes their concept."""
    nearest = (images @ texts.T).argmax(1)
    right = np.array([sentences[n]["concept"] == row["concept"] for n, row in zip(nearest, rows, strict=True)])
    where = np.array([row["described"] for row in rows])
    copied = np.array([row["copy_kind"] == "recoloured" for row in rows])
    told = where != "nowhere"
    return {
        "first_sentence": right[told].mean(), "first_sentence_own": right[where == "own"].mean(),
        "first_sentence_elsewhere": right[where == "elsewhere"].mean(), "first_sentence_recoloured": right[told & copied].mean(),
    }  # fmt: skip


def zero_shot(rows: list[dict], images: np.ndarray, prompts: np.ndarray, concept_names: list[str]) -> dict[str, float]:
    """Return the shares of pictures with the right concept first, and among the first three, of all names."""
    order = np.argsort(-(images @ prompts.T), axis=1)[:, :3]
    index = {name: k for k, name in enumerate(concept_names)}
    hit = order == np.array([index[row["concept"]] for row in rows])[:, None]
    return {"zero_shot_top1": hit[:, 0].mean(), "zero_shot_top3": hit.any(1).mean()}


def duplicates(rows: list[dict], images: np.ndarray) -> dict:
    """Return precision over all pairs, and recall of mirrored and recoloured copies, at each threshold.

    Pairs that the bytes or the perceptual hash find (exact and near copies) are left out.
    """
    roots = [row["original"] or row["rendering"] for row in rows]
    easy = np.array([row["copy_kind"] in ("exact", "near") for row in rows])
    kept = np.flatnonzero(~easy)
    roots_kept = np.array(roots)[kept]
    kinds = np.array([row["copy_kind"] for row in rows])[kept]
    likeness = np.triu(images[kept] @ images[kept].T, 1)
    true = np.triu(roots_kept[:, None] == roots_kept[None], 1)
    concepts = np.array([row["concept"] for row in rows])[kept]
    equal = np.triu(concepts[:, None] == concepts[None], 1) & ~true
    curve = []
    for threshold in THRESHOLDS:
        found = likeness >= threshold
        recall = {
            kind: float(found[true & ((kinds[:, None] == kind) | (kinds[None] == kind))].mean())
            for kind in ("mirrored", "recoloured")
        }
        point = {
            "cosine": float(threshold),
            "precision": float(true[found].mean()),
            "recall": float(found[true].mean()),
        }
        curve.append(point | {f"recall_{k}": v for k, v in recall.items()} | {"false": int((found & ~true).sum())})
    return {"hidden_pairs": int(true.sum()), "equal_concept_pairs": int(equal.sum()), "duplicates": curve}


def caption_all(folder: Path, images: list[Image.Image], prompt: str) -> tuple[list[str], float]:
    """Caption pictures greedily with at most 32 tokens; return the captions, and how many a second."""
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    turn = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]}]
    asked = processor.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    said, started = [], time.time()
    for k in range(0, len(images), 32):
        batch = [[image] for image in images[k : k + 32]]
        inputs = processor(text=[asked] * len(batch), images=batch, padding=True, return_tensors="pt")
        made = model.generate(**inputs, max_new_tokens=32, do_sample=False)
        said += processor.batch_decode(made[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    return said, len(images) / (time.time() - started)


def main() -> None:
    """Measure both models and print the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=MODELS)
    parser.add_argument("--captions", type=int, default=500, help="pictures to caption, spread evenly (0: all)")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows, sentences = load_world(args.world)
    concept_names, concepts = names(), Concepts(names())
    images, texts, prompts = embed(
        args.models / "clip",
        [r["image"] for r in rows],
        [s["text"] for s in sentences],
        [f"a picture of a {n}" for n in concept_names],
    )
    report: dict = {"pictures": len(rows), "sentences": len(sentences)}
    report |= zero_shot(rows, images, prompts, concept_names) | retrieval(rows, sentences, images, texts)
    step = max(1, len(rows) // args.captions) if args.captions else 1
    sample = rows[::step]
    said, speed = caption_all(args.models / "captioner", [r["image"] for r in sample], PROMPT)
    right = [r["concept"] in concepts.found(text) for r, text in zip(sample, said, strict=True)]
    ground = [f"{r['colour']} background" in text for r, text in zip(sample, said, strict=True)]
    report |= {
        "caption": np.mean(right),
        "caption_colour": np.mean(ground),
        "captions_a_second": speed,
        "captioned": len(sample),
    }
    report |= duplicates(rows, images)
    print(json.dumps(report, default=lambda x: round(float(x), 4)))


if __name__ == "__main__":
    main()
