"""Vectors and scores between Arrow and numpy: arrays at once give what one value after another gives."""

import math
import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Column, Score, Stage
from pairmill.tasks.run.items.rows import check_columns, scalars, score_rows, to_blobs, to_vectors
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


def one_by_one(values) -> list[float | None]:
    """The slow twin, by Python's own `round`."""
    return [None if value is None or np.isnan(value) else round(float(value), 4) for value in values]


def same(found: list[float | None], expected: list[float | None]) -> bool:
    """Compare bit by bit: -0.0 is not 0.0."""

    def bits(values: list[float | None]) -> list[bytes | None]:
        return [None if value is None else struct.pack("<d", value) for value in values]

    return bits(found) == bits(expected) and all(value is None or type(value) is float for value in found)


@st.composite
def near_ties(draw: st.DrawFn) -> float:
    """A value at, or a few doubles beside, the middle between two numbers of 4 decimals."""
    value = (draw(st.integers(-(10**6), 10**6)) + 0.5) / 10 ** draw(st.integers(4, 5))
    for _ in range(draw(st.integers(0, 3))):
        value = math.nextafter(value, draw(st.sampled_from([-math.inf, math.inf])))
    return value


NUMBERS = near_ties() | st.floats() | st.floats(-1, 1) | st.integers(-(2**20), 2**20).map(lambda n: n / 2**15)


@given(st.lists(NUMBERS | st.none()))
def test_scores_are_rounded_to_the_very_doubles_of_pythons_round(values: list[float | None]):
    assert same(scalars(values), one_by_one(values))
    numbers = np.array([value for value in values if value is not None])
    assert same(scalars(numbers), one_by_one(numbers))


@given(st.lists(st.floats(width=32)), st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_narrow_floats_and_whole_numbers_are_rounded_alike(floats: list[float], whole: list[int]):
    single = np.array(floats, np.float32)
    assert same(scalars(single), one_by_one(single))
    half = single.clip(-6e4, 6e4).astype(np.float16)
    assert same(scalars(half), one_by_one(half))
    integers = np.array(whole, np.int64)
    assert same(scalars(integers), one_by_one(integers))
    assert same(scalars([*floats, *whole, True]), one_by_one([*floats, *whole, True]))


def test_what_is_no_array_of_numbers_is_taken_or_refused_as_before():
    assert scalars([]) == [] and scalars([None]) == [None]
    for wrong in (["0.5"], [b"1"], np.zeros((2, 2))):
        with pytest.raises((TypeError, ValueError)):
            scalars(wrong)


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
        rows = score_rows(score, ["a", "b"], check_columns(score, {"pixels": [0, 0], "vividness": given}))  # pyright: ignore
    except PairmillError as refused:
        assert str(refused).startswith("package 'p', score 'vivid': ") and "\n" not in str(refused)
    else:
        assert len(rows) == 2 and "\x1b" not in str(rows.to_pylist())
    with pytest.raises(PairmillError, match="no columns by name"):
        check_columns(score, None)  # pyright: ignore
