"""Benchmark CLIP embeddings of pictures and sentences in bf16, against fp32 and the machine's own matmul rate.

Run as ``python -m infra.bench.clip [--pictures N] [--sentences N]``. The model is ViT-B-32 with random weights, which
are as fast as trained ones. The bound is the rate of a bare bf16 matmul of the tower's commonest shape, measured in the
same run, divided by the tower's operations per picture.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from infra.bench.measure import Row, cpu, finish, interleaved, parser, ratio
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.clip.clip_loaded import load

MODEL = "ViT-B-32"
BATCH = 64
# Operations (multiply and add) per picture: 12 layers of width 768 over 50 tokens, and 49 patches of 3 x 32 x 32.
TOKENS, WIDTH, LAYERS = 50, 768, 12
FLOPS = 2 * (LAYERS * (12 * TOKENS * WIDTH**2 + 2 * TOKENS**2 * WIDTH) + 49 * 3072 * WIDTH)
WORDS = ["a", "the", "of", "in", "on", "dog", "boat", "harbour", "red", "old", "photograph", "two", "people", "market"]


def random_model(folder: Path, name: str = MODEL) -> str:
    """Save a random CLIP of open_clip's architecture ``name`` in open_clip's own form; return its model spec."""
    import open_clip

    torch.manual_seed(0)
    model = open_clip.create_model(name)
    save_file({k: v.contiguous() for k, v in model.state_dict().items()}, folder / "open_clip_model.safetensors")
    settings = {"model_cfg": open_clip.get_model_config(name), "preprocess_cfg": model.visual.preprocess_cfg}
    (folder / "open_clip_config.json").write_text(json.dumps(settings))
    return f"open_clip:local-dir:{folder}"


def sentences(n: int) -> list[str]:
    """Make ``n`` random sentences of 4 to 30 words, median 12, as on web pages."""
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(np.log(12), 0.5, n).astype(int), 4, 30)
    return [" ".join(rng.choice(WORDS, size)) for size in lengths]


def padded(spec: str, texts: list[str]) -> None:
    """Embed texts as open_clip's own example does: in fp32, each sentence padded to 77 tokens."""
    loaded = load(spec, "fp32")
    with torch.inference_mode():
        for start in range(0, len(texts), BATCH):
            loaded.model.encode_text(loaded.tokenizer(texts[start : start + BATCH]), normalize=True)


def matmul(repeats: int = 12) -> int:
    """Run the tower's commonest matrix product ``repeats`` times; return the number of operations."""
    left = torch.randn(BATCH * TOKENS, WIDTH).bfloat16()
    right = torch.randn(WIDTH, 4 * WIDTH).bfloat16()
    for _ in range(repeats):
        left @ right
    return repeats * 2 * left.shape[0] * WIDTH * 4 * WIDTH


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Return the smallest cosine between the rows of two arrays of unit vectors."""
    return float((a * b).sum(1).min())


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--pictures", type=int, default=128)
    options.add_argument("--sentences", type=int, default=512)
    options = options.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    pixels = [rng.integers(0, 256, (224, 300, 3), np.uint8) for _ in range(options.pictures)]
    texts = sentences(options.sentences)
    with tempfile.TemporaryDirectory() as folder:
        spec = random_model(Path(folder))
        exact, fast = Clip(spec, "fp32", BATCH), Clip(spec, "bf16", BATCH)
        few = texts[: max(BATCH, len(texts) // 4)]
        image_cosine = cosine(exact.embed_images(pixels[:BATCH]), fast.embed_images(pixels[:BATCH]))
        text_cosine = cosine(exact.embed_texts(few), fast.embed_texts(few))
        rounds = interleaved(
            {
                "matmul": matmul,
                "image fp32": lambda: exact.embed_images(pixels[: len(pixels) // 2]),
                "image bf16": lambda: fast.embed_images(pixels),
                "text padded": lambda: padded(spec, few),
                "text fp32": lambda: exact.embed_texts(few),
                "text bf16": lambda: fast.embed_texts(texts),
            },
            options.rounds,
        )
    bound = matmul(1) * 12 / cpu(rounds["matmul"]) / FLOPS
    image, peer = len(pixels) / cpu(rounds["image bf16"]), len(pixels) // 2 / cpu(rounds["image fp32"])
    gain = ratio(rounds["image fp32"], rounds["image bf16"]) * len(pixels) / (len(pixels) // 2)
    text, text_peer = len(texts) / cpu(rounds["text bf16"]), len(few) / cpu(rounds["text padded"])
    text_gain = ratio(rounds["text padded"], rounds["text bf16"]) * len(texts) / len(few)
    bf16 = torch.cpu.get_capabilities().get("avx512_bf16") or torch.cpu.get_capabilities().get("amx_bf16")
    good = gain >= 3 and image / bound >= 0.8 and image_cosine >= 0.999
    rows = [
        Row(
            "image embedding, bf16",
            "img/CPU s",
            image,
            peer,
            "fp32",
            gain,
            None,
            ">= 3 x fp32, >= 0.8 of the bound, cosine >= 0.999",
            good,
            f"{image / bound:.2f} of the bound {bound:.1f}, smallest cosine {image_cosine:.5f}",
        ),
        Row(
            "text embedding, bf16 and cut",
            "texts/CPU s",
            text,
            text_peer,
            "fp32 padded to 77",
            text_gain,
            None,
            ">= 4 x",
            text_gain >= 4,
            f"smallest cosine {text_cosine:.5f}",
        ),
        Row(
            "text embedding, fp32 and cut",
            "texts/CPU s",
            len(few) / cpu(rounds["text fp32"]),
            text_peer,
            "fp32 padded to 77",
            ratio(rounds["text padded"], rounds["text fp32"]),
        ),
    ]
    finish("clip", rows, options, model=MODEL, weights="random", bf16_instructions=bool(bf16))


if __name__ == "__main__":
    main()
