"""Refuse to make a lake in a folder that holds other things: a folder of pictures is a source."""

import os
from contextlib import suppress

from pairmill.catalog.lake.location import SETTINGS_NAME, Location
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import LAKE_CATALOG, MARK

# What a lake itself begins with, in its folder and in that of its data, beside its catalog and files of that name.
# Hidden files (.gitkeep) are no one's pictures.
_OWN = {SETTINGS_NAME, "data", "main", "lost+found"}
SHOWN = 3


def check_new_place(location: Location) -> None:
    """Raise PairmillError where there is no lake yet and one of its folders holds other things.

    A folder with a lake.yaml was chosen for its catalog by who wrote that.
    """
    if os.path.exists(location.metadata):
        return
    for folder in location.folders:
        chosen = folder != location.data_path and os.path.exists(os.path.join(folder, SETTINGS_NAME))
        if not chosen and (found := _others(folder)):
            more = f" and {len(found) - SHOWN:,} more" if len(found) > SHOWN else ""
            raise PairmillError(
                f"lake '{location.uri}': there is no lake at {folder}, which holds other things "
                f"({', '.join(found[:SHOWN])}{more}). Name a new or an empty folder, such as "
                f"{os.path.join(folder, 'lake')}."
            )


def _others(folder: str) -> list[str]:
    with suppress(OSError):  # there is none, or none may look: opening the lake says so
        names = os.listdir(folder)
        others = (name for name in names if name not in _OWN and not name.startswith((LAKE_CATALOG, ".")))
        return [] if MARK in names else sorted(others)
    return []
