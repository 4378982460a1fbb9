"""Vectors between Arrow and numpy: the buffers' way gives what taking one blob after another gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.run.rows import to_blobs, to_vectors
from tests.examples import examples


def slowly(blobs: pa.ChunkedArray | pa.Array) -> list[list[float]]:
    return [np.frombuffer(blob, "<f2").astype(np.float32).tolist() for blob in blobs.to_pylist()]


@examples(40)
@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 39), st.sampled_from([pa.binary(), pa.large_binary()]))
def test_vectors_come_back_from_any_part_of_any_chunks(n: int, d: int, start: int, kind: pa.DataType):
    vectors = np.random.default_rng(n * d).standard_normal((n, d)).astype(np.float16)
    blobs = to_blobs(vectors).cast(kind)
    for some in (blobs, blobs[start:], pa.chunked_array([blobs[start:], blobs, blobs[:0]])):
        found = to_vectors(some)
        assert found.dtype == np.float32
        assert found.tolist() == slowly(some)


def test_no_vectors_are_an_empty_array():
    assert to_vectors(pa.array([], pa.binary())).shape == (0, 0)
    assert to_vectors(pa.chunked_array([], pa.binary())).shape == (0, 0)


def test_a_missing_vector_is_refused():
    with pytest.raises(ValueError, match="1 of 2 vectors are null"):
        to_vectors(pa.array([b"\x00\x3c", None], pa.binary()))
