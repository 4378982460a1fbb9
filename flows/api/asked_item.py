"""Resolve an item that a user names by id, sha256, address, file, link of the gallery, or a sentence's text."""

import re
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.explain.why import Resolved, resolve, similar_addresses
from pairmill.catalog.queries.explain.why_image import decisions
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.text.split import normalise

# Addresses of `pairmill browse`: of an item's page, and of its picture.
_SHOWN = re.compile(r"http://(?:127\.0\.0\.1|localhost):\d+/(?:item|picture/\w+)/([0-9a-f]{32})(?:[?#].*)?")


def find_item(lake: Lake, item: str) -> Resolved:
    """Return the images, sentences, documents and faults that ``item`` refers to.

    ``item``: an id, sha256, address, local file, link of the gallery, or a sentence's text. Raises PairmillError if the
    lake has none.
    """
    stored = as_stored(item)
    found = _resolve(lake, stored)
    if not found and stored != item:  # a local file has the same name as a file in a source
        found = _resolve(lake, item)
    if not found:
        near = "".join(f" Did you mean '{url}'?" for url in similar_addresses(lake, item))
        raise PairmillError(
            f"lake '{lake.uri}' knows no '{item}'.{near} Give an id, a sha256, the address of a picture or page, or of "
            "an item of the gallery, or a sentence's text; "
            '`pairmill sql "SELECT image_id, url FROM images LIMIT 10"` shows some.'
        )
    return found


def dataset_about(lake: Lake, found: Resolved, spec: str = "") -> datasets.Dataset | None:
    """Choose the version that explains items: ``spec``, else the newest that decided on an image, else the newest.

    None if nothing is published. Raises PairmillError for an unknown ``spec``.
    """
    if spec:
        return datasets.find(lake, spec)
    by_age = sorted(datasets.published(lake), key=lambda each: each.created_at)
    rows = decisions(lake, found.images[:1])[found.images[0]] if found.images else []
    decided = {(row["dataset"], row["version"]) for row in rows}
    about = [each for each in by_age if (each.name, each.version) in decided] or by_age
    return about[-1] if about else None


def _resolve(lake: Lake, item: str) -> Resolved:
    """Resolve an id, hash, address or sentence."""
    return resolve(lake, item, text_id(normalise(item)))


def as_stored(item: str) -> str:
    """Convert an item that a user names to the form that the lake stores.

    A link of the gallery becomes its image id, an existing file its absolute path, an address loses user and password.
    """
    if shown := _SHOWN.fullmatch(item):
        return shown[1]
    try:
        return str(Path(item).resolve()) if Path(item).exists() else without_users(item)
    except OSError:  # a sentence may be longer than a file name may be
        return item
