"""Benchmark decoding a JPEG to the 224 px picture that all scores share, and pHash, against Pillow and imagehash.

Run as ``python -m infra.bench.decode [--photos FOLDER] [--pictures N]``.
"""

from __future__ import annotations

import io

import imagehash
import numpy as np
import simplejpeg
import torch
from PIL import Image

from infra.bench import photographs
from infra.bench.measure import Row, cpu, finish, interleaved, parser, ratio, wall
from pairmill.ops.image.decode import Decode, target
from pairmill.ops.image.phash import PerceptualHash

SIDE = 224


def by_pillow(data: bytes) -> np.ndarray:
    """Decode and resize a JPEG with Pillow alone."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    height, width = target(image.height, image.width, SIDE)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def resized_by_pillow(data: bytes) -> np.ndarray:
    """Decode with our decoder, then resize with Pillow: the cost of pixels equal to Pillow's."""
    image = Image.fromarray(simplejpeg.decode_jpeg(data))
    height, width = target(image.height, image.width, SIDE)
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def equality(found: list, expected: list[np.ndarray]) -> str:
    """Describe how many values are equal, and the largest difference in gray levels."""
    gaps = np.concatenate([np.abs(a.astype(np.int16) - b).ravel() for a, b in zip(found, expected, strict=True)])
    return f"{(gaps == 0).mean():.2%} of the values equal, at most {gaps.max()} levels off"


def difference(found: list, expected: list[np.ndarray]) -> float:
    """Return the mean absolute difference in gray levels."""
    gaps = [np.abs(a.astype(np.int16) - b.astype(np.int16)).mean() for a, b in zip(found, expected, strict=True)]
    return float(np.mean(gaps))


def drift(data: list[bytes], small: list[np.ndarray]) -> float:
    """Return the mean number of bits that differ: our hash of the small picture, imagehash's of the whole one."""
    found = PerceptualHash()({"pixels": small})["phash"]
    expected = [int(str(imagehash.phash(Image.open(io.BytesIO(each)))), 16) for each in data]
    return float(np.mean([(int(a) ^ b).bit_count() for a, b in zip(found, expected, strict=True)]))


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    photographs.add_option(options, pictures=400)
    options = options.parse_args()
    torch.set_num_threads(1)
    data = photographs.photographs(options)
    exact, scaled = Decode(SIDE), Decode(SIDE, mode="scaled")
    small = [by_pillow(each) for each in data]
    whole = [Image.open(io.BytesIO(each)).convert("RGB") for each in data[:50]]
    large = photographs.photographs(options, widths=(1024, 1024))
    n = len(data)
    rounds = interleaved(
        {
            "pillow": lambda: [by_pillow(each) for each in data],
            "exact": lambda: [exact(each) for each in data],
            "scaled": lambda: [scaled(each) for each in data],
            "Pillow's resize": lambda: [resized_by_pillow(each) for each in data],
            "pillow, large": lambda: [by_pillow(each) for each in large],
            "scaled, large": lambda: [scaled(each) for each in large],
            "phash": lambda: PerceptualHash()({"pixels": small}),
            "imagehash": lambda: [imagehash.phash(image) for image in whole],
        },
        options.rounds,
    )
    found = [exact(each) for each in data]
    pillow, gap = n / cpu(rounds["pillow"]), difference(found, small)
    gains = {mode: ratio(rounds["pillow"], rounds[mode]) for mode in ("exact", "scaled", "Pillow's resize")}
    gap_slow = difference([resized_by_pillow(each) for each in data], small)
    gap_scaled = difference([scaled(each) for each in data], small)
    gain_large = ratio(rounds["pillow, large"], rounds["scaled, large"])
    gap_large = difference([scaled(each) for each in large], [by_pillow(each) for each in large])
    hashing = 1e3 * cpu(rounds["phash"]) / n
    peer_hashing = 1e3 * cpu(rounds["imagehash"]) / len(whole)
    bits = drift(data[:100], small[:100])
    unit = "img/CPU s"
    rows = [
        Row(
            "decode to 224 px, exact",
            unit,
            n / cpu(rounds["exact"]),
            pillow,
            "Pillow",
            gains["exact"],
            None,
            ">= 2.5 x at mean abs diff 0",
            gains["exact"] >= 2.5 and gap == 0,
            f"mean abs diff {gap:.4f}: {equality(found, small)}",
        ),
        Row(
            "the same, resized by Pillow itself",
            unit,
            n / cpu(rounds["Pillow's resize"]),
            pillow,
            "Pillow",
            gains["Pillow's resize"],
            note=f"mean abs diff {gap_slow:.4f}",
        ),
        Row(
            "decode to 224 px, scaled",
            unit,
            n / cpu(rounds["scaled"]),
            pillow,
            "Pillow",
            gains["scaled"],
            None,
            ">= 3.5 x at <= 1.25 levels",
            gains["scaled"] >= 3.5 and gap_scaled <= 1.25,
            f"mean abs diff {gap_scaled:.3f}",
        ),
        Row(
            "the same, pictures 1,024 px wide",
            unit,
            n / cpu(rounds["scaled, large"]),
            n / cpu(rounds["pillow, large"]),
            "Pillow",
            gain_large,
            None,
            ">= 3.5 x at <= 1.25 levels",
            gain_large >= 3.5 and gap_large <= 1.25,
            f"mean abs diff {gap_large:.3f}",
        ),
        Row(
            "pHash on top of the decode",
            "ms",
            hashing,
            peer_hashing,
            "imagehash",
            peer_hashing / hashing,
            None,
            "<= 0.15 ms, <= 1 bit from imagehash",
            hashing <= 0.15 and bits <= 1,
            f"mean drift {bits:.2f} bits",
        ),
    ]
    megapixels = float(np.mean([image.width * image.height for image in whole])) / 1e6
    finish(
        "decode",
        rows,
        options,
        originals="photographs" if options.photos else "generated",
        megapixels=round(megapixels, 2),
        kilobytes=round(sum(map(len, data)) / n / 1e3),
        wall={name: round(wall(each), 3) for name, each in rounds.items()},
    )


if __name__ == "__main__":
    main()
