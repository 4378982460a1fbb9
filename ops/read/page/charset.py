"""Decode text as a browser does: by byte order mark, then declaration, then UTF-8, then Windows-1252."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from pairmill.catalog.terms.controls import printable

# A declaration must be near the start of a page (WHATWG: in the first 1,024 bytes; real pages have it later).
DECLARED = re.compile(rb"""<(?:meta|\?xml)[^>]*?(?:charset|encoding)\s*=\s*["']?\s*([-\w.:]+)""", re.IGNORECASE)
DECLARED_WITHIN = 4096
MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
WEB = re.compile(
    r"utf-8|cp(866|874|932|949|125\d)|iso8859-\d+|koi8-[ru]|mac-roman|gb18030|big5(hkscs)?|euc_(jp|kr)|iso2022_jp"
)
# By these names the web means a Windows superset, which has printable characters where the standard has controls.
MEANT = {
    "iso8859-1": "cp1252",
    "ascii": "cp1252",
    "iso8859-9": "cp1254",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
}
# The largest share of undecodable characters in a page or a caption.
MAX_BAD = 0.1


class Decoded(NamedTuple):
    """Decoded text and the charset used."""

    text: str
    charset: str
    n_bad: int  # undecodable bytes, which are U+FFFD in ``text``, and control codes, which are removed


def decode_text(data: bytes) -> Decoded:
    """Decode the bytes of a page or a caption. Never raises."""
    for mark, charset in MARKS:
        if data.startswith(mark):
            return _decode(data[len(mark) :], charset)
    charset = _unmarked_utf16(data) or _declared(data)
    if charset not in ("", "utf-8"):
        return _decode(data, charset)
    try:
        return _decode(data, "utf-8", "strict")
    except UnicodeDecodeError:
        # Trust a page that declares UTF-8 despite a few bad bytes; one without a declaration is most likely old.
        return _decode(data, charset or "cp1252")


def _decode(data: bytes, charset: str, errors: str = "replace") -> Decoded:
    """Decode with ``charset``, remove control codes, and count the bad characters."""
    text = data.decode(charset, errors)
    kept = printable(text)
    return Decoded(kept, charset, len(text) - len(kept) + (text.count("\ufffd") if errors == "replace" else 0))


def _unmarked_utf16(data: bytes) -> str:
    """Detect UTF-16 without a byte order mark: in Latin text every second byte is NUL. Return '' if not UTF-16."""
    start = data[:512]
    if len(start) < 4 or b"\0" not in start:
        return ""
    even, odd = start[0::2].count(0), start[1::2].count(0)
    if odd > len(start) * 0.3 and even < len(start) * 0.05:
        return "utf-16-le"
    return "utf-16-be" if even > len(start) * 0.3 and odd < len(start) * 0.05 else ""


def _declared(data: bytes) -> str:
    """Return the charset that a page declares, as Python's codec name; '' if none or unknown to the web."""
    found = DECLARED.search(data[:DECLARED_WITHIN])
    if not found:
        return ""
    try:
        codec = codecs.lookup(found[1].decode("ascii"))
    except LookupError:
        return ""
    # Only charsets of the web: a declaration readable as bytes is not in UTF-16, and Python's codecs include rot13.
    name = MEANT.get(codec.name, codec.name)
    return name if WEB.fullmatch(name) else ""
