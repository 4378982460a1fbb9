"""Drop a dataset version: delete its published rows, and keep its number from being given again."""

from pairmill.catalog.lake.lake import Lake

# Tables with the rows of versions, by their columns of name and version; `datasets` last.
_OF_VERSIONS = {
    "pairs": ("dataset", "version"),
    "decisions": ("dataset", "version"),
    "funnel": ("dataset", "version"),
    "dataset_captioners": ("dataset", "version"),
    "datasets": ("name", "version"),
}


def drop_version(lake: Lake, name: str, version: int) -> dict[str, int]:
    """Delete a version's rows in one transaction; return the number of rows by table. The caller holds the lease.

    Scores, documents and exports stay. DuckLake's snapshots of before keep the rows until they expire.
    """

    def body() -> dict[str, int]:
        lake.execute(
            "INSERT INTO dropped_versions SELECT name, version, content_digest, n_pairs, created_at, now() "
            "FROM datasets WHERE name = ? AND version = ?",
            (name, version),
        )
        found = {}
        for table, (of_name, of_version) in _OF_VERSIONS.items():
            where = f"{of_name} = ? AND {of_version} = ?"
            found[table] = lake.query(f"SELECT count(*) FROM {table} WHERE {where}", (name, version))[0][0]
            if found[table]:
                lake.execute(f"DELETE FROM {table} WHERE {where}", (name, version))
        return found

    return lake.retrying(body)


def dropped_at(lake: Lake, name: str, version: int) -> str:
    """Return the day on which a version was dropped, '' if it was not."""
    sql = "SELECT dropped_at FROM dropped_versions WHERE name = ? AND version = ?"
    rows = lake.query(sql, (name, version))
    return f"{rows[0][0]:%Y-%m-%d}" if rows else ""


def highest_version(lake: Lake, name: str) -> int:
    """Return the highest number that a version of the dataset has or had, 0 if none."""
    numbers = " UNION ALL ".join(f"SELECT version FROM {t} WHERE name = ?" for t in ("datasets", "dropped_versions"))
    return lake.query(f"SELECT coalesce(max(version), 0) FROM ({numbers})", (name, name))[0][0]
