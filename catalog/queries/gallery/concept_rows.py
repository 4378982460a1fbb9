"""Stream what a count of concepts reads: the vectors of a version's pictures with their decisions, and its texts."""

from collections.abc import Iterator

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING

AT_ONCE = 20_000  # 20 MB of vectors of 512 numbers
SAMPLED = 10_000
Decided = tuple[str, str, bool]


def sample_vectors(lake: Lake, dataset: Dataset) -> np.ndarray:
    """Return the vectors of the SAMPLED pictures with the smallest sha256, a random sample: (n, d) float32."""
    rows = f"SELECT image_vector AS v FROM {_vectors(lake, dataset)} ORDER BY sha256 LIMIT {SAMPLED}"
    return _array([vector for (vector,) in lake.query(rows)])


def decided_vectors(lake: Lake, dataset: Dataset) -> Iterator[tuple[np.ndarray, list[Decided]]]:
    """Yield batches: vectors (n, d) float32 and for each image (dropped by, value, whether it fails that rule alone).

    Images without a vector, which a rule dropped before CLIP, are left out. A version of before the bits of `failed`
    tells of no image that it fails one rule alone.
    """
    is_migrated = lake.query("SELECT 1 FROM (DESCRIBE decisions) WHERE column_name = 'failed'")
    alone = "coalesce(bit_count(d.failed) = 1, false)" if is_migrated else "false"
    sql = (
        f"SELECT e.image_vector AS v, d.dropped_by, coalesce(d.value, '') AS value, {alone} AS alone "
        f"FROM decisions d JOIN (SELECT DISTINCT image_id, sha256 FROM images) i ON i.image_id = d.item_id "
        f"JOIN {_vectors(lake, dataset)} e ON e.sha256 = i.sha256 WHERE d.kind = 'image' AND {_of(dataset, 'd.')}"
    )
    for block in lake.blocks(sql, rows=AT_ONCE):
        columns = [block[name].to_pylist() for name in ("dropped_by", "value", "alone")]
        yield _array(block["v"].to_pylist()), list(zip(*columns, strict=True))


def pair_texts(lake: Lake, dataset: Dataset) -> Iterator[str]:
    """Yield for each pair its real texts in one, on a line each."""
    texts = ", ".join(text_columns.texts(dataset.n_texts))
    sql = f"SELECT concat_ws(chr(10), {texts}) AS said FROM pairs WHERE {_of(dataset)}"
    for block in lake.blocks(sql, rows=AT_ONCE):
        yield from block["said"].to_pylist()


def _vectors(lake: Lake, dataset: Dataset) -> str:
    """Return SQL for the image vectors that the version's CLIP made, one row per picture."""
    rows = current_scores(plan_of(lake, dataset), IMAGE_EMBEDDING.table, "sha256", dataset.commit)
    return f"(SELECT sha256, image_vector FROM {rows} WHERE image_vector IS NOT NULL)"


def _of(dataset: Dataset, prefix: str = "") -> str:
    return f"{prefix}dataset = {quoted(dataset.name)} AND {prefix}version = {dataset.version}"


def _array(vectors: list[bytes]) -> np.ndarray:
    """Return stored vectors as (n, d) float32; (0, 0) for none."""
    if not vectors:
        return np.empty((0, 0), np.float32)
    return np.frombuffer(b"".join(vectors), "<f2").reshape(len(vectors), -1).astype(np.float32)
