"""Name dataset versions: `release-1` for version 3, so that NAME@release-1 means it wherever NAME@3 does.

The names are a table of the metadata database, like the lease: a version can be named while a run holds the lease, and
the names are part of every copy of the catalog.
"""

import re
from collections import defaultdict
from datetime import UTC, datetime

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.metadata import VERSION_NAMES, VERSION_NAMES_TABLE
from pairmill.catalog.terms.error import PairmillError

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,62}")


def version_names(lake: Lake) -> dict[tuple[str, int], list[str]]:
    """Return the names by dataset and version, sorted."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    if lake.metadata.has(VERSION_NAMES):
        for dataset, version, name in lake.metadata.read(f"SELECT dataset, version, name FROM {VERSION_NAMES}"):
            found[dataset, version].append(name)
    return {key: sorted(names) for key, names in found.items()}


def name_version(lake: Lake, dataset: str, version: int, name: str) -> None:
    """Name a version. Does nothing if it has the name.

    Raises:
        PairmillError: ``name`` is not valid, or names another version of the dataset.
    """
    if not _NAME.fullmatch(name):
        raise PairmillError(
            f"'{name}' cannot name a version: write a letter, then letters, digits, '.', '_' or '-', 63 at most, "
            "as in release-1."
        )
    if not lake.metadata.has(VERSION_NAMES):
        lake.metadata.write(VERSION_NAMES_TABLE)
    row = f"{quoted(dataset)}, {quoted(name)}, {version}, {quoted(datetime.now(UTC).isoformat())}"

    def body() -> int:
        where = f"dataset = {quoted(dataset)} AND name = {quoted(name)}"
        held = lake.metadata.read(f"SELECT version FROM {VERSION_NAMES} WHERE {where}")
        if not held:
            lake.metadata.write(f"INSERT INTO {VERSION_NAMES} VALUES ({row})")
        return held[0][0] if held else version

    if (other := lake.metadata.retrying(body)) != version:
        raise PairmillError(
            f"'{name}' is the name of {dataset}@{other}. Choose another, or free it first: pairmill tag "
            f"{dataset}@{other} {name} --remove"
        )


def remove_name(lake: Lake, dataset: str, version: int, name: str) -> None:
    """Remove a name of a version. Raise PairmillError if the version does not have it."""
    names = version_names(lake).get((dataset, version), [])
    if name not in names:
        raise PairmillError(f"{dataset}@{version} has no name '{name}'; it has {', '.join(names) or 'none'}.")
    lake.metadata.write(f"DELETE FROM {VERSION_NAMES} WHERE dataset = {quoted(dataset)} AND name = {quoted(name)}")
