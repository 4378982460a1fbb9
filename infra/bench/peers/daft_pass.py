"""Run the pixel pass in Daft, as in its documentation: ``python daft_pass.py FOLDER OUT``."""

import sys

import daft
import plain
from daft import col
from daft.functions import decode_image, download, image_hash, resize


@daft.func(return_dtype=daft.DataType.struct({name: daft.DataType.float64() for name in plain.NAMES}))
def scores(pixels):
    """Return the four scores of a picture."""
    return plain.scores(pixels)


def main(folder: str, out: str) -> None:
    """Score all pictures of ``folder`` and write Parquet to ``out``."""
    frame = daft.from_glob_path(f"{folder}/*.jpg").select("path")
    frame = frame.with_column("image", decode_image(download(col("path")), mode="RGB"))
    frame = frame.with_column("image", resize(col("image"), plain.SIDE, plain.SIDE))
    frame = frame.with_column("scores", scores(col("image"))).with_column("phash", image_hash(col("image")))
    frame.select("path", "scores", "phash").write_parquet(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
