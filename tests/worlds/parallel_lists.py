"""List columns in the form of OBELICS."""

import pyarrow as pa

STRINGS = pa.list_(pa.string())


def lists(*rows, kind=STRINGS):
    """Return an array of lists."""
    return pa.array(rows, kind)
