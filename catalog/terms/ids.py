"""Make ids: 32 hex digits, the first 128 bits of a sha256. They depend on content alone, never on place or order."""

from __future__ import annotations

import hashlib

# ASCII unit separator: does not occur in real text, so ("a", "bc") and ("ab", "c") differ.
SEPARATOR = "\x1f"


def content_id(data: bytes) -> str:
    """Return the id of bytes: what the catalog calls ``sha256``."""
    return hashlib.sha256(data).hexdigest()[:32]


def text_id(*parts: str) -> str:
    """Return an id of texts in order. Lone surrogates, which JSON and HTML may smuggle in, are hashed as they stand."""
    return content_id(SEPARATOR.join(parts).encode("utf-8", "surrogatepass"))
