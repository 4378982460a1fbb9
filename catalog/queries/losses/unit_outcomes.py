"""Count, by source unit, which pictures of a dataset version were kept and which rule dropped the others."""

from collections import defaultdict
from dataclasses import dataclass
from math import inf

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset

_BLOCK = 2_000_000  # hash comparisons at once, 16 MB


@dataclass(frozen=True)
class UnitOutcomes:
    """Outcome (kept, or the rule that dropped it) of each of a version's n pictures, with its source unit."""

    units: tuple[str, ...]  # names of the units that have pictures
    unit: np.ndarray  # index of the picture's unit in ``units``, int (n,)
    dropped_by: np.ndarray  # the rule that dropped it, '' for a kept one, str (n,)
    content: np.ndarray  # the picture's content id, str (n,)
    group: np.ndarray  # id of its duplicate group, or its content id if it is in no group, str (n,)
    n_bytes: np.ndarray  # size of its file in bytes, int64 (n,)


def unit_outcomes(lake: Lake, dataset: Dataset, groups: str, by_document: bool) -> UnitOutcomes:
    """Read which pictures of a version were kept and which rule dropped the others, with their units (or documents).

    ``groups`` is the digest of the scorer of its duplicate groups, '' for none.
    """
    found = lake.table(f"""SELECT {_unit(by_document)} AS unit, c.dropped_by, i.sha256 AS content,
        coalesce(g.group_id, i.sha256) AS "group", i.n_bytes FROM images i JOIN (SELECT item_id, dropped_by
        FROM decisions WHERE {dataset.where} AND kind = 'image') c ON c.item_id = i.image_id JOIN documents d ON
        d.document_id = i.document_id LEFT JOIN (SELECT sha256, group_id FROM image_groups WHERE scorer
        = {quoted(groups)}) g ON g.sha256 = i.sha256 ORDER BY unit, i.image_id""")
    names = ("unit", "dropped_by", "content", "group")
    unit, fates, contents, groups_of = (found[name].to_numpy(zero_copy_only=False).astype(str) for name in names)
    units, place = np.unique(unit, return_inverse=True)
    return UnitOutcomes(tuple(units.tolist()), place, fates, contents, groups_of, found["n_bytes"].to_numpy())


def capped_clusters(lake: Lake, dataset: Dataset, clusters: str) -> np.ndarray:
    """Return how many pictures of each cluster reach the cap, and how many it drops: float64 (clusters, 2).

    ``clusters`` is the digest of the scorer of the clusters.
    """
    rows = lake.query(f"""SELECT count(*), count(*) FILTER (dropped_by = 'balance') FROM images i JOIN (SELECT item_id,
        dropped_by FROM decisions WHERE {dataset.where} AND kind = 'image') d ON d.item_id = i.image_id
        JOIN (SELECT key, cluster FROM clusters WHERE scorer = {quoted(clusters)}) c ON c.key = i.sha256
        WHERE dropped_by IN ('', 'balance') GROUP BY c.cluster ORDER BY c.cluster""")
    return np.array(rows, np.float64).reshape(-1, 2)


def similar_units(lake: Lake, found: UnitOutcomes, scorer: str, least: float, by_document: bool) -> np.ndarray:
    """Return, for each picture, the number of units with a retrieved sentence of similarity >= ``least``: float64 (n,).

    It is inf if the picture's own unit has such a sentence. ``scorer`` is the digest of the matches.
    """
    sql = f"""SELECT DISTINCT m.sha256, {_unit(by_document)} FROM match_candidates m JOIN sentences s USING (content)
        JOIN documents d ON d.document_id = s.document_id WHERE m.scorer = ? AND m.similarity >= ?"""
    rows = lake.query(sql, (scorer, least))
    units: dict[str, set[str]] = defaultdict(set)
    for content, unit in rows:
        units[content].add(unit)
    pictures = zip(found.content.tolist(), found.unit.tolist(), strict=True)
    return np.array([inf if found.units[own] in units[each] else len(units[each]) for each, own in pictures], float)


def _unit(by_document: bool) -> str:
    """Return SQL for the unit of document ``d``, or for the document itself."""
    return "d.document_id" if by_document else "coalesce(nullif(d.unit, ''), d.document_id)"


def pictures_by_source(lake: Lake) -> dict[str, int]:
    """Return source -> number of its pictures and of the addresses of pictures that its documents link to."""
    places = "SELECT d.source FROM images JOIN documents d USING (document_id) UNION ALL SELECT source FROM links"
    return dict(lake.query(f"SELECT source, count(*) FROM ({places}) GROUP BY ALL"))


def n_documents(lake: Lake) -> int:
    """Count the documents of a lake."""
    return lake.query("SELECT count(*) FROM documents")[0][0]


def written_bytes(lake: Lake) -> tuple[int, int]:
    """Return (bytes of a lake's picture files, bytes of all its other data files)."""
    of_pictures = "\"table\" = 'payloads'"
    sums = ", ".join(
        f"coalesce(sum(bytes) FILTER ({where}), 0)::BIGINT" for where in (of_pictures, f"NOT {of_pictures}")
    )
    return lake.query(f"SELECT {sums} FROM partitions")[0]


def known_contents(lake: Lake, sampled: Lake, bits: int | None) -> set[str]:
    """Return the picture contents of ``sampled`` that ``lake`` has too: of equal bytes, or with a near hash.

    Hashes are near if they differ in at most ``bits`` of 64; None compares no hashes. All hashes are compared: 5,000
    pictures with a million take 5 s.
    """
    contents = [content for (content,) in sampled.query("SELECT sha256 FROM image_content")]
    equal = "SELECT sha256 FROM image_content WHERE sha256 IN (SELECT unnest(?::VARCHAR[]))"
    found = {content for (content,) in lake.query(equal, (contents,))}
    if bits is None:
        return found
    known = np.unique(lake.table("SELECT DISTINCT phash FROM image_hash WHERE phash IS NOT NULL")["phash"].to_numpy())
    own = sampled.table("SELECT sha256, phash FROM image_hash WHERE phash IS NOT NULL")
    if not len(known) or not len(own):
        return found
    hashes, names = own["phash"].to_numpy(), own["sha256"].to_pylist()
    at_once = max(1, _BLOCK // len(known))
    for first in range(0, len(hashes), at_once):
        near = np.bitwise_count(hashes[first : first + at_once, None] ^ known[None, :]).min(axis=1) <= bits
        found.update(names[first + int(place)] for place in np.flatnonzero(near))
    return found
