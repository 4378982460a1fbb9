"""Refuse to create a lake in a folder that contains other files: a folder of images is a source."""

import os
from contextlib import suppress

from pairmill.catalog.lake.location import SETTINGS_NAME, Location
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import LAKE_CATALOG, MARK

# Names that a new lake itself creates in its folder and in its data folder, beside the catalog and its side files.
# Hidden files (.gitkeep) are ignored: they are not images.
_OWN = {SETTINGS_NAME, "data", "main", "lost+found"}
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
        others = (name for name in names if name not in _OWN and not name.startswith((LAKE_CATALOG, ".")))
        return [] if MARK in names else sorted(others)
    return []
