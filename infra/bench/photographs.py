"""Make photographs of web size: JPEG of some 0.3 to 1 megapixel, re-encoded from a folder of originals.

Without a folder, pictures are made of noise at several scales, which compresses and decodes like photographs.
"""

from __future__ import annotations

import argparse
import io
import math
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image

LONGEST = 2048


def add_option(parser: argparse.ArgumentParser, pictures: int) -> None:
    """Add the options ``--photos`` and ``--pictures``."""
    parser.add_argument("--photos", type=Path, help="folder of originals; without it pictures are generated")
    parser.add_argument("--pictures", type=int, default=pictures, help="how many pictures are made of them")


def photographs(options: argparse.Namespace, widths: tuple[int, int] = (400, 1400), seed: int = 0) -> list[bytes]:
    """Return ``options.pictures`` distinct JPEGs: 4:2:0, quality 70 to 92, of ``widths`` in pixels.

    The result is deterministic for a seed.
    """
    rng = np.random.default_rng(seed)
    originals = _originals(options.photos) if options.photos else _generated(rng)
    known = list(islice(originals, options.pictures))
    made: list[bytes] = []
    share = math.ceil(options.pictures / max(1, len(known)))
    for original in known:
        made += [_variant(original, widths, rng) for _ in range(min(share, options.pictures - len(made)))]
    rng.shuffle(made)  # type: ignore[arg-type]
    return made


def _variant(original: Image.Image, widths: tuple[int, int], rng: np.random.Generator) -> bytes:
    """Return a crop of 70 to 100 % of the original, resized to a width in ``widths``."""
    share = rng.uniform(0.7, 1.0)
    width, height = (max(8, int(side * share)) for side in original.size)
    left, top = (
        int(rng.integers(0, whole - part + 1)) for whole, part in zip(original.size, (width, height), strict=True)
    )
    wanted = int(rng.uniform(*widths))
    size = (wanted, max(8, wanted * height // width))
    picture = original.resize(size, Image.Resampling.BILINEAR, box=(left, top, left + width, top + height))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=int(rng.integers(70, 93)))
    return buffer.getvalue()


def _originals(folder: Path) -> Iterator[Image.Image]:
    """Yield the readable pictures of a folder as RGB, at most LONGEST px on a side.

    Pictures below 200 px or beyond 4:1 are skipped.
    """
    for path in sorted(folder.rglob("*")):
        try:
            with Image.open(path) as image:
                if min(image.size) < 200 or max(image.size) > 4 * min(image.size):
                    continue
                image.thumbnail((LONGEST, LONGEST))
                yield image.convert("RGB")
        except (OSError, ValueError, Image.DecompressionBombError):
            continue


def _generated(rng: np.random.Generator) -> Iterator[Image.Image]:
    """Yield forty pictures of six octaves of noise each."""
    for _ in range(40):
        canvas = np.zeros((900, 1200, 3), np.float32)
        for octave in range(6):
            cells = (4 * 2**octave, 5 * 2**octave)
            coarse = rng.normal(0, 60 / 1.6**octave, (*cells, 3)).astype(np.float32)
            planes = [Image.fromarray(coarse[..., c]).resize((1200, 900), Image.Resampling.BICUBIC) for c in range(3)]
            canvas += np.stack([np.asarray(plane) for plane in planes], axis=-1)
        yield Image.fromarray(np.clip(canvas + 128, 0, 255).astype(np.uint8))
