"""Parse whole numbers with suffixes: 30M, 500k, 1.2B."""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, Field

_WRITTEN = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kmb]?)", re.IGNORECASE)
_TIMES = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}


def whole_number(value: object) -> object:
    """Convert a text such as '30M', '500k', '1.2B' or '168300' to an int; return any other value unchanged.

    Raises:
        ValueError: The text is not a whole number; '1.0005k' is not.
    """
    if not isinstance(value, str):
        return value
    found = _WRITTEN.fullmatch(value.strip())
    n = Decimal(found[1]) * _TIMES[found[2].lower()] if found else None
    if n is None or n % 1:
        raise ValueError(f"'{value[:80]}' is no whole number; write one, such as 30M, 1.2B or 500000")
    return int(n)


_Positive = Annotated[int, Field(ge=1, le=10**12)]
WholeNumber = Annotated[_Positive, BeforeValidator(whole_number, json_schema_input_type=_Positive | str)]
