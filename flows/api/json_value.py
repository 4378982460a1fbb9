"""Convert values of a query to what JSON has."""

import math
from decimal import Decimal
from typing import Any


def json_value(value: Any) -> Any:
    """Convert bytes to hex digits, NaN and infinity to null, other types that JSON lacks to text."""
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
