"""Read the CLIP vectors of a lake's pictures: all in one memory-mapped file, those of some ids, or with decisions."""

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import cache_folder, oldest_first
from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.catalog.write.recorded_removals import last_removal

KEPT_FILES = 3  # per lake: 1 GB each for a million vectors; the least recently used go
ID_BYTES = 32
MOST = 100_000  # ids of one call: their vectors take 200 MB at 512 dimensions
AT_ONCE = 20_000  # 20 MB of vectors of 512 numbers
SAMPLED = 10_000
Decided = tuple[str, str, bool]


@dataclass(frozen=True)
class ImageVectors:
    """CLIP vectors of pictures, (n, d) float16, memory-mapped from ``path``; row i belongs to ``sha256s[i]``, sorted.

    ``scorer`` is the digest of the scorer, ``model`` of its CLIP model.
    """

    sha256s: np.ndarray
    vectors: np.ndarray
    scorer: str
    model: str
    path: Path

    def row(self, sha256: str) -> int | None:
        """Return the row number of a picture's vector, None if it has no vector."""
        key = sha256.encode()
        at = int(np.searchsorted(self.sha256s, np.bytes_(key)))
        return at if at < len(self.sha256s) and self.sha256s[at] == key else None

    def names(self, rows: np.ndarray) -> tuple[str, ...]:
        """Return the sha256s of the pictures at the row numbers ``rows``."""
        return tuple(name.decode() for name in self.sha256s[rows])


def image_vectors(lake: Lake, dataset: Dataset | None) -> ImageVectors | None:
    """Memory-map all image vectors of one CLIP scorer from their file; write the file if it is missing or outdated.

    The scorer is the version's, or without a version the newest. None if the lake has no vector of it. Writing the file
    takes 10 s and 1 GB for a million vectors of 512 numbers.
    """
    known = lake.query("SELECT digest, model FROM scorers WHERE name = 'image_embedding' ORDER BY commit DESC")
    found = [(digest, model) for digest, model in known if dataset is None or digest in dataset.scorers]
    if not found:
        return None
    (scorer, model), *_ = found
    of_scorer = f"image_embedding WHERE scorer = {quoted(scorer)} AND image_vector IS NOT NULL"
    upto = f" AND commit <= {dataset.commit}" if dataset else ""
    counts = f"SELECT count(DISTINCT sha256), any_value(octet_length(image_vector)) FROM {of_scorer}{upto}"
    n, length = lake.query(counts)[0]
    if not n:
        return None
    removed = last_removal(lake)
    of = f"{lake.data_path} {scorer} {n} {dataset and dataset.commit} {removed}"
    name = hashlib.sha256(of.encode()).hexdigest()[:32]
    path = cache_folder(lake, "browse") / f"vectors-{name}.bin"
    size = n * (ID_BYTES + length)
    if [each.st_size for _, each in oldest_first([path])] != [size]:
        for old, _ in oldest_first(path.parent.glob("vectors-*.bin"))[: 1 - KEPT_FILES]:
            for part in old.parent.glob(f"{old.stem}.*"):
                part.unlink(missing_ok=True)
        once = f"SELECT sha256, any_value(image_vector) AS v FROM {of_scorer}{upto} GROUP BY sha256"
        with whole_file(path) as half, open(half, "wb") as ids, open(half, "r+b") as vectors:
            vectors.seek(n * ID_BYTES)
            for block in lake.blocks(f"{once} ORDER BY sha256", rows=AT_ONCE):
                ids.write("".join(block["sha256"].to_pylist()).encode())
                vectors.write(b"".join(block["v"].to_pylist()))
        if last_removal(lake) != removed:  # the file may hold what was removed meanwhile
            path.unlink(missing_ok=True)
            return image_vectors(lake, dataset)
    with suppress(FileNotFoundError):  # removed by another process since
        os.utime(path)
        ids = np.memmap(path, f"S{ID_BYTES}", "r", shape=(n,))
        vectors = np.memmap(path, "<f2", "r", offset=n * ID_BYTES, shape=(n, length // 2))
        return ImageVectors(ids, vectors, scorer, model, path)
    return image_vectors(lake, dataset)


def vectors_of(lake: Lake, dataset: Dataset, image_ids: Sequence[str]) -> np.ndarray:
    """Return the vectors of the images ``image_ids``, of unit length, in this order: float32 (n, d), from float16.

    Reads the ids' shards alone, so a call costs about as many files as the ids have shards. Raises PairmillError if
    there are over MOST ids, an id is unknown, or an image has no vector by the version's CLIP.
    """
    if len(image_ids) > MOST:
        raise PairmillError(f"{len(image_ids):,} vectors in one call; ask for at most {MOST:,} at once.")
    if not image_ids:
        return np.empty((0, 0), np.float32)
    homes = homes_of_images(lake, image_ids)
    if unknown := [image_id for image_id in image_ids if image_id not in homes]:
        raise PairmillError(f"lake '{lake.uri}' knows no image '{unknown[0]}'; give image ids as in `pairs.image_id`.")
    shards = ", ".join(quoted(shard) for shard in sorted({shard for _, shard in homes.values()}))
    keys = sorted({sha256 for sha256, _ in homes.values()})
    of_shards = _vectors(lake, dataset, f"shard IN ({shards})")
    sql = f"SELECT sha256, image_vector FROM {of_shards} WHERE sha256 IN (SELECT unnest(?))"
    found = {sha256: np.frombuffer(vector, "<f2") for sha256, vector in lake.query(sql, (keys,))}
    if lacking := [image_id for image_id in image_ids if homes[image_id][0] not in found]:
        raise PairmillError(
            f"image '{lacking[0]}' has no vector by the CLIP of {dataset}: a rule dropped it before, or it does not "
            f"decode; see `pairmill why {lacking[0]}`."
        )
    return np.stack([found[homes[image_id][0]] for image_id in image_ids]).astype(np.float32)


def sample_vectors(lake: Lake, dataset: Dataset) -> np.ndarray:
    """Return the vectors of the SAMPLED pictures with the smallest sha256, a random sample: (n, d) float32."""
    rows = f"SELECT image_vector AS v FROM {_vectors(lake, dataset)} ORDER BY sha256 LIMIT {SAMPLED}"
    return _array([vector for (vector,) in lake.query(rows)])


def decided_vectors(lake: Lake, dataset: Dataset) -> Iterator[tuple[np.ndarray, list[Decided]]]:
    """Yield batches of (vectors (n, d) float32, [(dropped by, value, whether the image fails that rule alone)]).

    Images without a vector, which a rule dropped before CLIP, are left out.
    """
    decided = f"SELECT * FROM decisions WHERE {dataset.where} AND kind = 'image'"
    sql = f"""SELECT e.image_vector AS v, d.dropped_by, coalesce(d.value, '') AS value,
        coalesce(bit_count(d.failed) = 1, false) AS alone FROM ({decided}) d
        JOIN (SELECT DISTINCT image_id, sha256 FROM images) i ON i.image_id = d.item_id
        JOIN {_vectors(lake, dataset)} e ON e.sha256 = i.sha256"""
    for block in lake.blocks(sql, rows=AT_ONCE):
        columns = [block[name].to_pylist() for name in ("dropped_by", "value", "alone")]
        yield _array(block["v"].to_pylist()), list(zip(*columns, strict=True))


def texts_of_pairs(lake: Lake, dataset: Dataset) -> Iterator[str]:
    """Yield for each pair of the version its real texts as one string, one text per line."""
    texts = ", ".join(text_columns.texts(dataset.n_texts))
    sql = f"SELECT concat_ws(chr(10), {texts}) AS said FROM pairs WHERE {dataset.where}"
    for block in lake.blocks(sql, rows=AT_ONCE):
        yield from block["said"].to_pylist()


def _vectors(lake: Lake, dataset: Dataset, only: str = "") -> str:
    """Return SQL for the image vectors of the version's CLIP, one row per picture; ``only`` restricts them."""
    rows = current_scores(plan_of(lake, dataset), IMAGE_EMBEDDING.table, "sha256", dataset.commit, only)
    return f"(SELECT sha256, image_vector FROM {rows} WHERE image_vector IS NOT NULL)"


def _array(vectors: list[bytes]) -> np.ndarray:
    """Return stored vectors as (n, d) float32; (0, 0) for none."""
    if not vectors:
        return np.empty((0, 0), np.float32)
    return np.frombuffer(b"".join(vectors), "<f2").reshape(len(vectors), -1).astype(np.float32)
