"""The pixel pass in Ray Data, as its docs write it: ``python ray_pass.py FOLDER OUT``."""

import sys

import numpy as np
import plain
import ray
from PIL import Image


def score(row: dict) -> dict:
    image = Image.fromarray(row["image"])
    scale = plain.SIDE / min(image.size)
    size = (round(image.width * scale), round(image.height * scale))
    pixels = np.asarray(image.resize(size, Image.Resampling.BICUBIC))
    return {"path": row["path"], **plain.scores(pixels), "phash": plain.phash(pixels)}


def main(folder: str, out: str) -> None:
    images = ray.data.read_images(folder, mode="RGB", include_paths=True)
    images.map(score).write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
