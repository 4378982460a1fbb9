"""Run the stage's own ops in a bare pool of two processes: ``python -m infra.bench.peers.bare_pass FOLDER OUT``."""

import multiprocessing
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from pairmill.ops.image.decode import Decode
from pairmill.ops.image.image_quality import ImageQuality, with_luma
from pairmill.ops.image.phash import PerceptualHash

CHUNK = 64


def scored(paths: list[Path]) -> dict:
    """Score the pictures of one chunk."""
    torch.set_num_threads(1)
    batch = {"pixels": [Decode()(path.read_bytes()) for path in paths]}
    result = PerceptualHash()(ImageQuality()(with_luma(batch)))
    scores = {name: result[name] for name in result if name not in ("pixels", "luma")}
    return {"path": [path.name for path in paths]} | scores


def main(folder: str, out: str) -> None:
    """Score all pictures of ``folder`` and write one Parquet file."""
    paths = sorted(Path(folder).glob("*.jpg"))
    chunks = [paths[at : at + CHUNK] for at in range(0, len(paths), CHUNK)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        rows = pa.concat_tables(pa.table(part) for part in pool.imap_unordered(scored, chunks))
    pq.write_table(rows, out)


if __name__ == "__main__":
    main(*sys.argv[1:])
