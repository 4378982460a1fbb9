"""Columns of lists, as OBELICS has them."""

import pyarrow as pa

STRINGS = pa.list_(pa.string())


def lists(*rows, kind=STRINGS):
    return pa.array(rows, kind)
