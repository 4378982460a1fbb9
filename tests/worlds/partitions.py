"""Write partitions as workers do."""

import os

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.stored_files import append_digest, file_digest
from pairmill.catalog.write.commit import Manifest


def partition(
    lake: Lake, name: str, keys: list[str], commit: int = 1, run_id: str = "run", attempt: str = ""
) -> Manifest:
    """Write a Parquet file of `image_hash` rows and return its manifest, as a worker does.

    Each ``attempt`` has its own file.
    """
    path = f"{lake.staging('image_hash', run_id)}/{name}{attempt}.parquet"
    n = len(keys)
    columns = {"sha256": keys, "shard": [name] * n, "scorer": ["k"] * n, "commit": pa.array([commit] * n, pa.int64())}
    columns |= {"phash": pa.array(range(n), pa.uint64()), "flat_colours": pa.nulls(n, pa.string())}
    pq.write_table(pa.table(columns), path)
    sha256 = file_digest(path)
    os.replace(path, path := append_digest(path, sha256))
    return Manifest("image_hash", name, name, "k", n, os.path.getsize(path), 0.5, path, commit, run_id, sha256)
