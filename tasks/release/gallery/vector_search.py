"""Search a lake's picture vectors by codes in a file beside them, which is written if it is missing."""

from pathlib import Path

import numpy as np

from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.ops.whole.mapped import blocks, picked
from pairmill.ops.whole.sign_codes import EXACT_BELOW, SignCodes, encode, words

AT_ONCE = 20_000  # vectors encoded at once
SAMPLED = 20_000  # vectors whose mean is taken off all, evenly spread over the rows


def sign_codes(stored: ImageVectors) -> SignCodes:
    """Return the codes of the stored vectors, mapped into memory; none are made where a full scan is fast enough.

    The file appears complete or not at all. A million vectors of 512 numbers take 15 s of one CPU, once.
    """
    n, d = stored.vectors.shape
    if n < EXACT_BELOW:
        return SignCodes(np.zeros(d, np.float32), np.zeros((words(d), 0), np.uint64))
    path = stored.path.with_suffix(".codes")
    size = 4 * d + 8 * words(d) * n
    if not path.exists() or path.stat().st_size != size:
        _write(stored.vectors, path)
    mean = np.fromfile(path, np.float32, d)
    return SignCodes(mean, np.memmap(path, np.uint64, "r", offset=4 * d, shape=(words(d), n)))


def _write(vectors: np.ndarray, path: Path) -> None:
    n, d = vectors.shape
    mean = picked(vectors, np.arange(0, n, -(-n // SAMPLED))).astype(np.float32).mean(0)
    with whole_file(path) as half:
        half.write_bytes(mean.tobytes())
        codes = np.memmap(half, np.uint64, "r+", offset=4 * d, shape=(words(d), n))
        for start, block in zip(range(0, n, AT_ONCE), blocks(vectors, AT_ONCE), strict=True):
            codes[:, start : start + AT_ONCE] = encode(block, mean)
        codes.flush()
