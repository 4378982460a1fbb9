"""Return a table's columns as an Arrow schema: the schema that a file must have to be registered with DuckLake."""

from functools import cache

import pyarrow as pa

from pairmill.catalog.lake.schema import columns

TYPES = {
    "VARCHAR": pa.string(), "BIGINT": pa.int64(), "INTEGER": pa.int32(), "UBIGINT": pa.uint64(),
    "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_(), "BLOB": pa.binary(), "VARCHAR[]": pa.list_(pa.string()),
    "DOUBLE[]": pa.list_(pa.float64()), "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", "UTC"),
}  # fmt: skip


@cache
def arrow_schema(table: str) -> pa.Schema:
    """Return column names and Arrow types of ``table``, in order. Raise KeyError if there is no such table."""
    return pa.schema([(name, TYPES[kind]) for name, kind in columns(table).items()])
