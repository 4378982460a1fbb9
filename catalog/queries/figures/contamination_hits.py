"""Select the pictures that the rule `contamination` dropped, each with the benchmark's picture that it is near to."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.parts import CONTAMINATION
from pairmill.catalog.recipe.plan import Plan

SHOWN = 6  # of each set


@dataclass(frozen=True)
class SetHits:
    """Pictures dropped for being near to pictures of one benchmark set.

    Attributes:
        folder: The benchmark's folder.
        n: Distinct pictures that are near to one of its pictures.
        hits: SHOWN of these, nearest first: image_id, sha256, shard, bits (differing hash bits), cosine (None without
            vectors), and ``file``, the benchmark's picture.
    """

    folder: str
    n: int
    hits: list[dict[str, Any]]


def contamination_hits(lake: Lake, dataset: Dataset, plan: Plan) -> list[SetHits]:
    """Return the hits of each benchmark set of the version's recipe, in its order; [] if the recipe names no sets.

    A hit is counted with the set of its nearest copy by hash if the hash dropped it, else of its nearest vector.
    """
    section = plan.recipe.contamination
    if section is None:
        return []
    vectors = "NULL::DOUBLE AS cosine, NULL::VARCHAR AS near"
    joined = ""
    if section.cosine is not None:
        vectors = "v.benchmark_cosine AS cosine, v.benchmark_near AS near"
        joined = f"LEFT JOIN (SELECT * FROM benchmark_vector WHERE scorer = '{plan.scorer('benchmark_vector')}') v " \
                 "ON v.sha256 = i.sha256"  # fmt: skip
    rows = lake.rows(
        f"SELECT min(i.image_id) AS image_id, i.sha256, c.shard, h.benchmark_bits AS bits, {vectors}, "
        "CASE WHEN h.benchmark_bits <= ? THEN h.benchmark_copy ELSE near END AS file FROM decisions d "
        f"JOIN images i ON i.image_id = d.item_id JOIN image_content c ON c.sha256 = i.sha256 "
        f"JOIN (SELECT * FROM benchmark_hash WHERE scorer = '{plan.scorer('benchmark_hash')}') h "
        f"ON h.sha256 = i.sha256 {joined} WHERE d.dataset = ? AND d.version = ? AND d.dropped_by = '{CONTAMINATION}' "
        "GROUP BY ALL ORDER BY bits, cosine DESC, i.sha256",
        (section.phash, dataset.name, dataset.version),
    )
    found: dict[str, list[dict[str, Any]]] = {folder: [] for folder in section.sets}
    for row in rows:
        folder = _set_of(row["file"], section.sets)
        if folder:
            found[folder].append(row)
    return [SetHits(folder, len(hits), hits[:SHOWN]) for folder, hits in found.items()]


def _set_of(file: str | None, sets: list[str]) -> str:
    """Return the set whose folder holds a file, '' for none."""
    return next((each for each in sets if file and Path(file).is_relative_to(Path(each).expanduser())), "")
