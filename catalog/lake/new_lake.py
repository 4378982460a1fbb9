"""Create a new lake from the shipped empty catalog, which saves 1 CPU s of making its tables.

A folder that contains other files is refused: a folder of images is a source.

The shipped catalog equals the result of the migrations: `infra/empty_catalog.py` writes it, a test compares the two. If
it is older than the newest migration, it is migrated like any other catalog.
"""

import gzip
import os
from contextlib import suppress
from glob import iglob
from pathlib import Path

from pairmill.catalog.lake.location import SETTINGS_NAME, Location
from pairmill.catalog.lake.stored_files import make_folder, sync
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import LAKE_CATALOG, MARK

SHIPPED = Path(__file__).with_name("empty_catalog.sqlite.gz")


def copy_empty_catalog(location: Location) -> None:
    """Copy the empty catalog to ``location`` if there is none; of two processes the first copy stays.

    Does nothing if the catalog is on Postgres, the data on S3, or there is data without a catalog, as opening reports.
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


# Names that a new lake itself creates in its folder and in its data folder, beside the catalog and its side files.
# Hidden files (.gitkeep) are ignored: they are not images.
_OWN_NAMES = {SETTINGS_NAME, "data", "main", "lost+found"}
SHOWN = 3


def check_new_place(location: Location) -> None:
    """Raise PairmillError if there is no lake yet and one of its folders contains other files.

    The folder of a lake.yaml is accepted for the catalog: the author of that file chose it.
    """
    if os.path.exists(location.metadata):
        return
    for folder in location.folders:
        chosen = folder != location.data_path and os.path.exists(os.path.join(folder, SETTINGS_NAME))
        if not chosen and (found := _others(folder)):
            more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
            raise PairmillError(
                f"lake '{location.uri}': there is no lake at {folder}, which holds other things "
                f"({', '.join(found[:SHOWN])}{more}). Name a new or an empty folder, such as {folder.rstrip('/')}-lake."
            )


def _others(folder: str) -> list[str]:
    """Return the sorted names in ``folder`` that no lake creates; [] if the folder is marked as a lake's."""
    with suppress(OSError):  # missing or not readable: opening the lake reports that
        names = os.listdir(folder)
        others = (name for name in names if name not in _OWN_NAMES and not name.startswith((LAKE_CATALOG, ".")))
        return [] if MARK in names else sorted(others)
    return []
