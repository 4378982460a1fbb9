"""Create a new lake from the shipped empty catalog, which saves 1 CPU s of making its tables.

The shipped catalog equals the result of the migrations: `infra/empty_catalog.py` writes it, a test compares the two. If
it is older than the newest migration, it is migrated like any other catalog.
"""

import gzip
import os
from contextlib import suppress
from glob import iglob
from pathlib import Path

from pairmill.catalog.lake.durable import make_folder, sync
from pairmill.catalog.lake.location import Location

SHIPPED = Path(__file__).with_name("empty_catalog.sqlite.gz")


def begin(location: Location) -> None:
    """Copy the empty catalog to ``location`` if there is none.

    Does nothing if the catalog is on Postgres, the data is on S3, or there is data without a catalog; opening the lake
    reports the last case. If two processes create the same lake, the first copy stays.
    """
    if location.on_postgres or location.on_s3 or os.path.exists(location.metadata) or not SHIPPED.is_file():
        return
    if next(iglob(f"{location.data_path}main/**/*.parquet", recursive=True), None):
        return
    make_folder(os.path.dirname(location.metadata))
    half = f"{location.metadata}.{os.getpid()}.part"
    with open(half, "wb") as file:
        file.write(gzip.decompress(SHIPPED.read_bytes()))
        file.flush()
        os.fsync(file.fileno())
    try:
        with suppress(OSError):  # exists by now, or a file system without links: migrations create the tables then
            os.link(half, location.metadata)
            sync(os.path.dirname(location.metadata))
    finally:
        os.remove(half)
