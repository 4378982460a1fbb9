"""Run the pixel pass in Ray Data, as in its documentation: ``python ray_pass.py FOLDER OUT``."""

import sys

import numpy as np
import plain
import ray
from PIL import Image


def score(row: dict) -> dict:
    """Return the path, the four scores and the pHash of a picture."""
    image = Image.fromarray(row["image"])
    scale = plain.SIDE / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    return {"path": row["path"], **plain.scores(pixels), "phash": plain.phash(pixels)}


def main(folder: str, out: str) -> None:
    """Score all pictures of ``folder`` and write Parquet to ``out``."""
    images = ray.data.read_images(folder, mode="RGB", include_paths=True)
    images.map(score).write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
