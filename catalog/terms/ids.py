"""Compute ids: 32 hex digits, the first 128 bits of a sha256. Ids depend on content alone, never on place or order."""

import hashlib

# ASCII unit separator: it does not occur in real text, so ("a", "bc") and ("ab", "c") get different ids.
SEPARATOR = "\x1f"


def content_id(data: bytes) -> str:
    """Return the id of ``data``, 32 hex digits, which the catalog's columns call ``sha256``."""
    return hashlib.sha256(data).hexdigest()[:32]


def text_id(*parts: str) -> str:
    """Return the id of one or more texts in order, 32 hex digits.

    Lone surrogates, which JSON and HTML may contain, are hashed unchanged.
    """
    return content_id(SEPARATOR.join(parts).encode("utf-8", "surrogatepass"))
