"""Vectors between Arrow and numpy: the buffers' way gives what taking one blob after another gives."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.terms.error import PairmillError
from catalog.terms.score import Column, Score, Stage
from tasks.run.rows import measured, score_rows, to_blobs, to_vectors
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


KINDS = ("DOUBLE", "INTEGER", "VARCHAR", "BOOLEAN", "BLOB", "VARCHAR[]")
GIVEN = [None, 1.0, [1], "ab", ["a", "\0\x1b[2J\ud800"], [{}, {}], [1j, 2j], [object()] * 2, [10**400] * 2, [True] * 2,
         {1: 1, 2: 2}, np.zeros((2, 2)), np.array(3.0), iter([1, 2]), [float("nan")] * 2, [None, None]]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", GIVEN, ids=lambda given: ascii(given)[:20])
def test_what_a_strangers_op_gives_is_rows_or_refused_with_its_package(kind: str, given: object):
    score = Score(
        "vivid", "image", (Column("vividness", kind, "x"),), stage=Stage.PIXELS, reads=("pixels",), package="p"
    )
    try:
        rows = score_rows(score, ["a", "b"], measured(score, {"pixels": [0, 0], "vividness": given}))  # pyright: ignore
    except PairmillError as refused:
        assert str(refused).startswith("package 'p', score 'vivid': ") and "\n" not in str(refused)
    else:
        assert len(rows) == 2 and "\x1b" not in str(rows.to_pylist())
    with pytest.raises(PairmillError, match="no columns by name"):
        measured(score, None)  # pyright: ignore
