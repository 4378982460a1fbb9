"""Parse numbers and times in protocol headers; the header values are untrusted."""

import contextlib
import time
from email.utils import parsedate_to_datetime


def whole_number(text: str) -> int | None:
    """Parse 1 to 18 ASCII digits as an integer; return None for any other text.

    `str.isdigit` accepts '\u00b2' as a digit, and `int` raises ValueError for '\u00b2' and for more than 4,300 digits.
    """
    digits = text.strip(" \t")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None


def seconds_until(text: str) -> float:
    """Parse a ``Retry-After`` header (RFC 9110, 10.2.3) as seconds from now.

    The header holds either seconds or a date; any other text gives 0, and a date in the past gives a negative number.
    """
    # OverflowError: the date has a year or an hour of twelve digits.
    with contextlib.suppress(ValueError, TypeError, OverflowError):
        seconds = whole_number(text)
        return float(seconds) if seconds is not None else parsedate_to_datetime(text).timestamp() - time.time()
    return 0.0
