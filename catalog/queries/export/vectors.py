"""Read the CLIP vectors of images, by the scorers of a dataset version."""

from collections.abc import Sequence

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING

MOST = 100_000  # ids of one call: their vectors take 200 MB at 512 dimensions


def vectors_of(lake: Lake, dataset: Dataset, image_ids: Sequence[str]) -> np.ndarray:
    """Return the images' vectors of unit length in the order of ``image_ids``: float32 (n, d), stored as float16.

    Reads the ids' shards alone, so a call costs about as many files as the ids have shards.

    Raises:
        PairmillError: There are over MOST ids, an id is unknown, or an image has no vector by the version's CLIP.
    """
    if len(image_ids) > MOST:
        raise PairmillError(f"{len(image_ids):,} vectors in one call; ask for at most {MOST:,} at once.")
    if not image_ids:
        return np.empty((0, 0), np.float32)
    homes = _homes(lake, image_ids)
    if unknown := [image_id for image_id in image_ids if image_id not in homes]:
        raise PairmillError(f"lake '{lake.uri}' knows no image '{unknown[0]}'; give image ids as in `pairs.image_id`.")
    shards = sorted({shard for _, shard in homes.values()})
    only = "shard IN (" + ", ".join(f"'{shard}'" for shard in shards) + ")"
    rows = current_scores(plan_of(lake, dataset), IMAGE_EMBEDDING.table, "sha256", dataset.commit, only)
    keys = sorted({sha256 for sha256, _ in homes.values()})
    sql = f"SELECT sha256, image_vector FROM {rows} WHERE sha256 IN (SELECT unnest(?)) AND image_vector IS NOT NULL"
    found = {sha256: np.frombuffer(vector, "<f2") for sha256, vector in lake.query(sql, (keys,))}
    if lacking := [image_id for image_id in image_ids if homes[image_id][0] not in found]:
        raise PairmillError(
            f"image '{lacking[0]}' has no vector by the CLIP of {dataset}: a rule dropped it before, or it does not "
            f"decode; see `pairmill why {lacking[0]}`."
        )
    return np.stack([found[homes[image_id][0]] for image_id in image_ids]).astype(np.float32)


def _homes(lake: Lake, image_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return sha256 and home shard by image id."""
    sql = (
        "SELECT DISTINCT image_id, sha256, c.shard FROM images i JOIN image_content c USING (sha256) "
        "WHERE image_id IN (SELECT unnest(?))"
    )
    return {image_id: (sha256, shard) for image_id, sha256, shard in lake.query(sql, (list(image_ids),))}
