"""Bring a document's metadata into a shape that JSON and every table can hold."""

from __future__ import annotations

import json
import math
from typing import Any

from pairmill.catalog.terms.controls import printable, printable_json

# One value of metadata is kept up to here: a similarity matrix or a page of EXIF must not outgrow its picture.
MAX_TEXT = 65_536
# Lists, objects and values of one JSON text: each takes some 100 bytes, and twice where it is stored.
MOST_VALUES = 1_000_000
# Bytes of an MD5, SHA-1, SHA-256 and SHA-512, which tables may hold as they are.
DIGESTS = (16, 20, 32, 64)


def parsed(value: Any) -> Any:
    """Parse JSON text, and return anything else as it is; None for what cannot be parsed. Never raises."""
    if not isinstance(value, str | bytes):
        return value
    if exceeds_value_limit(value):
        return None
    try:
        return json.loads(value, parse_constant=lambda _: None)  # NaN is no JSON
    except (ValueError, RecursionError):
        return None


def exceeds_value_limit(text: str | bytes) -> bool:
    """Whether a JSON text may hold over MOST_VALUES values, which a worker could not: `[[],[],…]` grows 21 times."""
    if len(text) <= MOST_VALUES:
        return False
    if isinstance(text, bytes):
        return text.count(b",") + text.count(b"[") + text.count(b"{") > MOST_VALUES
    return text.count(",") + text.count("[") + text.count("{") > MOST_VALUES


def as_storable(value: Any) -> dict[str, object]:
    """Make a dict storable as JSON: dates as text, digests in hex, other bytes left out, NaN as null.

    {} for anything but a dict.
    """
    if not isinstance(value, dict):
        return {}
    kept = {str(name): _hex(each) for name, each in value.items() if not _is_content(each)}
    if all(_is_plain(name) and _is_plain(each) for name, each in kept.items()):
        return kept  # the usual row of a table: nothing for JSON to change
    try:
        text = printable_json(json.dumps(kept, default=_as_text, ensure_ascii=False))
    except (ValueError, RecursionError):
        return {}
    found = parsed(text)
    return {name: each for name, each in found.items() if _is_small(each)} if isinstance(found, dict) else {}


def _is_content(value: object) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) not in DIGESTS


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MAX_TEXT // 6 and printable(value) == value
    return value is None or type(value) in (int, bool) or (type(value) is float and math.isfinite(value))


def _hex(value: object) -> object:
    return value.hex() if isinstance(value, bytes | bytearray) else value


def clean(value: object) -> str:
    """Make one line of text: white space collapsed, control codes and lone surrogates removed; '' for no text."""
    return " ".join(printable(value).split()) if isinstance(value, str) else ""


def _as_text(value: object) -> str | None:
    return None if isinstance(value, bytes | bytearray) else str(value)


def _is_small(value: object) -> bool:
    return not isinstance(value, str | list | dict) or len(json.dumps(value)) <= MAX_TEXT
