"""Store names (tags) of dataset versions, and drop versions.

If version 3 is named `release-1`, NAME@release-1 means NAME@3 everywhere. The names are a table of the metadata
database, like the lease: a version can be named while a run holds the lease, and a copy of the catalog has them.
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
    """Return (dataset, version) -> sorted names (tags) of the version."""
    found: dict[tuple[str, int], list[str]] = defaultdict(list)
    if lake.metadata.has(VERSION_NAMES):
        for dataset, version, name in lake.metadata.read(f"SELECT dataset, version, name FROM {VERSION_NAMES}"):
            found[dataset, version].append(name)
    return {key: sorted(names) for key, names in found.items()}


def name_version(lake: Lake, dataset: str, version: int, name: str) -> None:
    """Give a version the name (tag) ``name``. Raise PairmillError if it is invalid or names another version."""
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
        if not (held := lake.metadata.read(f"SELECT version FROM {VERSION_NAMES} WHERE {where}")):
            lake.metadata.write(f"INSERT INTO {VERSION_NAMES} VALUES ({row})")
        return held[0][0] if held else version

    if (other := lake.metadata.retrying(body)) != version:
        raise PairmillError(
            f"'{name}' is the name of {dataset}@{other}. Choose another, or free it first: pairmill tag "
            f"{dataset}@{other} {name} --remove"
        )


def remove_name(lake: Lake, dataset: str, version: int, name: str) -> None:
    """Remove a name (tag) from a version. Raise PairmillError if the version does not have it."""
    names = version_names(lake).get((dataset, version), [])
    if name not in names:
        raise PairmillError(f"{dataset}@{version} has no name '{name}'; it has {', '.join(names) or 'none'}.")
    lake.metadata.write(f"DELETE FROM {VERSION_NAMES} WHERE dataset = {quoted(dataset)} AND name = {quoted(name)}")


# Tables with the rows of versions; `datasets`, whose column of the dataset is `name`, last.
_OF_VERSIONS = ("pairs", "edited_texts", "decisions", "funnel", "wrong_pairs", "proofs", "dataset_captioners",
                "datasets")  # fmt: skip


def drop_version(lake: Lake, name: str, version: int) -> dict[str, int]:
    """Delete a dataset version in one transaction; return table -> number of deleted rows. Requires the lease.

    Scores, documents and exports stay. Earlier snapshots of DuckLake keep the rows until they expire.
    """

    def body() -> dict[str, int]:
        sql = """INSERT INTO dropped_versions SELECT name, version, content_digest, n_pairs, created_at, now()
            FROM datasets WHERE name = ? AND version = ?"""
        lake.execute(sql, (name, version))
        found = {}
        for table in _OF_VERSIONS:
            where = f"{'name' if table == 'datasets' else 'dataset'} = ? AND version = ?"
            found[table] = lake.query(f"SELECT count(*) FROM {table} WHERE {where}", (name, version))[0][0]
            if found[table]:
                lake.execute(f"DELETE FROM {table} WHERE {where}", (name, version))
        return found

    return lake.retrying(body)


def dropped_at(lake: Lake, name: str, version: int) -> str:
    """Return the day on which a version was dropped as YYYY-MM-DD; '' if it was not dropped."""
    rows = lake.query("SELECT dropped_at FROM dropped_versions WHERE name = ? AND version = ?", (name, version))
    return f"{rows[0][0]:%Y-%m-%d}" if rows else ""


def highest_version(lake: Lake, name: str) -> int:
    """Return the highest version number that the dataset has or ever had, 0 if none."""
    numbers = " UNION ALL ".join(f"SELECT version FROM {t} WHERE name = ?" for t in ("datasets", "dropped_versions"))
    return lake.query(f"SELECT coalesce(max(version), 0) FROM ({numbers})", (name, name))[0][0]
