"""Read the ban list of a lake: what takedowns forbid to come in again."""

from collections import defaultdict
from collections.abc import Mapping

from pairmill.catalog.lake.lake import Lake


def bans(lake: Lake) -> Mapping[str, frozenset[str]]:
    """Return the banned values by kind: 'picture' and 'document' (ids), 'uri', 'address' or 'phash'.

    They are held in memory by every worker: 100 bytes each, so a million of them is the most that is sensible.
    """
    sql = "SELECT 'picture' AS kind, sha256 AS value FROM bans UNION ALL SELECT kind, value FROM taken_bans"
    found: dict[str, set[str]] = defaultdict(set)
    for kind, value in lake.query(sql):
        found[kind].add(value)
    return defaultdict(frozenset, {kind: frozenset(values) for kind, values in found.items()})
