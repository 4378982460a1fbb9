"""Ids of pictures are written from their bytes as they were before."""

import os

import numpy as np
import pyarrow as pa

from pairmill.tasks.relate.duplicates import names


def test_names_are_the_hex_digits_of_the_keys_whatever_their_chunks():
    raw = [os.urandom(16) for _ in range(1000)]
    keys = pa.chunked_array([pa.array(raw[:300], pa.binary()), pa.array(raw[300:], pa.binary())]).slice(7)
    rows = np.array([5, 992, 300, 0, 0])
    assert names(keys, rows).to_pylist() == [raw[7 + row].hex() for row in rows]
    assert names(keys, rows[:0]).to_pylist() == []
