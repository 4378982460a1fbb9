"""Read the ban list of a lake: what takedowns forbid to come in again."""

from pairmill.catalog.lake.lake import Lake


def banned_pictures(lake: Lake) -> frozenset[str]:
    """Return the ids (the first 32 hex digits of the sha256) of all banned images."""
    return frozenset(row[0] for row in lake.query("SELECT sha256 FROM bans"))


def bans_of(lake: Lake, kind: str) -> tuple[str, ...]:
    """Return the banned values of a kind: 'address', 'document' or 'phash', sorted.

    They are held in memory by every worker: 100 bytes each, so a million of them is the most that is sensible.
    """
    if "taken_bans" not in lake.tables:  # an older lake, opened by a reader
        return ()
    rows = lake.query("SELECT DISTINCT value FROM taken_bans WHERE kind = ? ORDER BY value", (kind,))
    return tuple(value for (value,) in rows)
