"""Read the numbers and times of a protocol's headers, which strangers write."""

import contextlib
import time
from email.utils import parsedate_to_datetime


def whole_number(text: str) -> int | None:
    """Return the number that up to 18 ASCII digits stand for, None for any other text.

    `str.isdigit` takes '\u00b2' for a digit, and `int` raises ValueError for it as for more than 4,300 digits.
    """
    digits = text.strip(" \t")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def seconds_until(text: str) -> float:
    """Parse ``Retry-After`` (RFC 9110, 10.2.3): seconds, or a date; 0 for what is neither."""
    # OverflowError: a year or an hour of twelve digits.
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = whole_number(text)
        return float(seconds) if seconds is not None else parsedate_to_datetime(text).timestamp() - time.time()
    return 0.0
