"""Convert a document's metadata to values that JSON and every table can hold."""

from __future__ import annotations

import json
import math
from typing import Any

from pairmill.catalog.terms.controls import printable, printable_json

# The largest metadata value to store, in characters of JSON: a similarity matrix or a page of EXIF must not outgrow its
# image.
MAX_TEXT = 65_536
# Lists, objects and values of one JSON text: each takes some 100 bytes, and twice that where it is stored.
MOST_VALUES = 1_000_000
# Sizes in bytes of MD5, SHA-1, SHA-256 and SHA-512 digests, which tables may hold as binary.
DIGESTS = (16, 20, 32, 64)


def parsed(value: Any) -> Any:
    """Parse JSON text; return None if it is invalid, and return a value that is not text unchanged. Never raises."""
    if not isinstance(value, str | bytes):
        return value
    if exceeds_value_limit(value):
        return None
    try:
        return json.loads(value, parse_constant=lambda _: None)  # NaN is not JSON
    except (ValueError, RecursionError):
        return None


def exceeds_value_limit(text: str | bytes) -> bool:
    """Return whether a JSON text may hold more than MOST_VALUES values, too many for a worker's memory.

    A text such as `[[],[],…]` grows 21 times when parsed.
    """
    if len(text) <= MOST_VALUES:
        return False
    if isinstance(text, bytes):
        return text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_VALUES
    return text.count(",") + text.count("[") + text.count("{") > MOST_VALUES


def as_storable(value: Any) -> dict[str, object]:
    """Convert a dict to one that JSON can store; return {} for any other value.

    Dates become text, digests become hex, NaN becomes null; other bytes, and values over MAX_TEXT, are dropped.
    """
    if not isinstance(value, dict):
        return {}
    kept = {str(name): _hex(each) for name, each in value.items() if not _is_content(each)}
    if all(_is_plain(name) and _is_plain(each) for name, each in kept.items()):
        return kept  # the usual row of a table: all values are JSON already
    try:
        text = printable_json(json.dumps(kept, default=_as_text, ensure_ascii=False))
    except (ValueError, RecursionError):
        return {}
    found = parsed(text)
    return {name: each for name, each in found.items() if _is_small(each)} if isinstance(found, dict) else {}


def _is_content(value: object) -> bool:
    """Return whether ``value`` is binary and not a digest."""
    return isinstance(value, bytes | bytearray) and len(value) not in DIGESTS


def _is_plain(value: object) -> bool:
    """Return whether ``value`` is a short printable text, an int, a bool, a finite float or None."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT // 6 and printable(value) == value
    return value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


def _hex(value: object) -> object:
    """Convert bytes to hex; return any other value unchanged."""
    return value.hex() if isinstance(value, bytes | bytearray) else value


def clean(value: object) -> str:
    """Normalise text to one line: collapse white space, drop control codes and lone surrogates; '' if not a string."""
    return " ".join(printable(value).split()) if isinstance(value, str) else ""


def _as_text(value: object) -> str | None:
    """Convert a value that JSON does not know to text; None for bytes."""
    return None if isinstance(value, bytes | bytearray) else str(value)


def _is_small(value: object) -> bool:
    """Return whether the JSON of ``value`` has at most MAX_TEXT characters; numbers always pass."""
    return not isinstance(value, str | list | dict) or len(json.dumps(value)) <= MAX_TEXT
