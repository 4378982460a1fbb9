"""Identify an export by its mark and lists, and tell whether a folder may be written: empty, or this very export's."""

from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export import exports
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import MARK
from pairmill.tasks.release.export.destination import MANIFEST, PROGRESS, Destination, Written

LAYOUT = 2  # of files and members; an export of another layout is written anew, because loaders want one layout


def whose_export(lake: Lake, dataset: Dataset, format: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the export's mark file: lake and dataset. An amended version stays the same export.

    ``more`` are choices other than the default ones.
    """
    holds = {"dataset": dataset.name, "version": dataset.version, "format": format, **more}
    return {"lake": exports.lake_id(lake), **holds}


def whose_growing(lake: Lake, recipe: Recipe, format: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return the content of the mark file of an export that takes in each version that this recipe makes."""
    holds = {"dataset": recipe.name, "recipe": recipe.digest(), "format": format, **more}
    return {"lake": exports.lake_id(lake), **holds}


def check_growing(lake: Lake, recipe: Recipe, to: str, format: str, more: dict[str, Any]) -> None:
    """Raise PairmillError unless ``to`` is empty or has the growing export of this recipe; create a local folder."""
    place, whose = Destination(to), whose_growing(lake, recipe, format, more)
    check_place(place, lake, whose, whose, amended=True)
    place.prepare()


def check_place(place: Destination, lake: Lake, whose: dict[str, Any], head: dict[str, Any], amended: bool) -> None:
    """Raise PairmillError unless the folder is empty or has this very export."""
    if f"{place.uri}/".startswith(lake.data_path):
        raise PairmillError(f"'{place.uri}' lies in the data of the lake itself. Give another folder.")
    names = [name for name in place.names() if name != f"{MARK}.part"]
    if not names:
        return
    held = [place.read_json(name) for name in (MARK, MANIFEST, PROGRESS) if name in names]
    # A copied lake has the same id: versions that both published since then differ in their content digest.
    if held and held[0] == whose and (amended or all(_is_of(each, head, "content_digest") for each in held[1:])):
        return
    if told := next((each for each in held if each.keys() >= {"dataset", "format"}), None):
        kind = " with all captions" if "captions" in told else ""
        kind += f" with the text {told['text']}" if "text" in told else ""
        kind += f" shuffled by {told['shuffle']}" if "shuffle" in told else ""
        same = all(
            told.get(name) == whose.get(name)
            for name in ("dataset", "version", "format", "captions", "text", "shuffle", "recipe")
        )
        other = " of another lake, or of other content" if same else ""
        if told.get("recipe", "") != whose.get("recipe", ""):
            other = " by another recipe" if "recipe" in told and "recipe" in whose else " of another kind (--grow)"
        version = f"@{told['version']}" if "version" in told else ""
        it = f"holds the export of {told['dataset']}{version} as {told['format']}{kind}{other}"
    else:
        it = f"is not empty (there is '{names[0]}'), and an export is written into a folder of its own"
    raise PairmillError(f"'{place.uri}' {it}. Give another folder, or empty this one.")


def _is_of(listing: dict[str, Any], head: dict[str, Any], *keys: str) -> bool:
    """Return whether a list has the values of ``head`` for ``keys``."""
    return all(key in listing and listing[key] == head[key] for key in keys)


def head_of(dataset: Dataset, format: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the manifest that identifies an export."""
    return {
        "dataset": dataset.name,
        "version": dataset.version,
        "format": format,
        "content_digest": dataset.content_digest,
        "rows": dataset.n_pairs,
        "layout": LAYOUT,
        **more,
    }


def finished(place: Destination, head: dict[str, Any]) -> list[Written]:
    """Return the files of a finished export of this content, else []."""
    manifest = place.read_json(MANIFEST)
    return listed_files(place, manifest, head) if manifest.get("files") else []


def listed_files(place: Destination, listing: dict[str, Any], head: dict[str, Any]) -> list[Written]:
    """Return the files of a manifest or progress.json if it is of this content and all files exist, else []."""
    if any(listing.get(key) != value for key, value in head.items()):
        return []
    files = [Written(**file) for file in listing.get("files", [])]
    return files if all(place.holds(file) for file in files) else []


def grown_files(lake: Lake, place: Destination, n_rows: int) -> tuple[list[Written], list[str]]:
    """Return the files of a growing export that still have all their rows, and the digest of each file's rows.

    The digest is '' for a file that is missing or whose rows have changed.
    """
    listing, files, digests, first = place.read_json(PROGRESS), [], [], 0
    if listing.get("layout") != LAYOUT:
        return [], []
    for row, was in zip(listing.get("files", []), listing.get("digests", []), strict=False):
        file = Written(**row)
        last = first + file.rows
        if last > n_rows:
            break
        files.append(file)
        digests.append(was if was == exports.digest(lake, first, last) and place.holds(file) else "")
        first = last
    return files, digests
