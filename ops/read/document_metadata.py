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
    """Return whether a JSON text may hold over MOST_VALUES values: `[[],[],…]` grows 21 times when parsed."""
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
    kept: dict[str, object] = {}
    for name, each in value.items():
        if not isinstance(each, bytes | bytearray):
            kept[str(name)] = each
        elif len(each) in DIGESTS:
            kept[str(name)] = each.hex()
    if all(_is_plain(name) and _is_plain(each) for name, each in kept.items()):
        return kept  # the usual row of a table: all values are JSON already
    try:
        told = json.dumps(kept, default=lambda each: None if isinstance(each, bytes) else str(each), ensure_ascii=False)
        text = printable_json(told)
    except (ValueError, RecursionError):
        return {}
    found = parsed(text)
    return {name: each for name, each in found.items() if _is_small(each)} if isinstance(found, dict) else {}


def _is_plain(value: object) -> bool:
    """Return whether ``value`` is a short printable text, an int, a bool, a finite float or None."""
    if isinstance(value, str):
        return len(value) <= MAX_TEXT // 6 and printable(value) == value
    return value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


def clean(value: object) -> str:
    """Normalise text to one line: collapse white space, drop control codes and lone surrogates; '' if not a string."""
    return " ".join(printable(value).split()) if isinstance(value, str) else ""


def _is_small(value: object) -> bool:
    """Return whether the JSON of ``value`` has at most MAX_TEXT characters; numbers always pass."""
    return not isinstance(value, str | list | dict) or len(json.dumps(value)) <= MAX_TEXT
