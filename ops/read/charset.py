"""Decode text as a browser does: by byte order mark, HTTP header, the page's declaration, else by its letters.

The labels and decoders are those of the Encoding Standard (webencodings), libxml2 reads the markup, and uchardet
(resiliparse) guesses for text without a declaration. The table counts correctly decoded texts of the 200 pages of
tests/worlds/charsets.py; half 2 was first read when the code was done. Chromium decodes all declared texts the same:

| | half 1 | half 2 |
|---|---|---|
| this module | 100 | 94; 98 by the mends that it asked for |
| Chromium 150, which guesses no UTF-8 | 96 | 93 |
| resiliparse 2.0 alone | 74 | 69 |
| w3lib 2.5 with uchardet; chardetng; charset-normalizer | 64; 62; 51 | 52; 51; 42 |
"""

import codecs
import re
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import webencodings
from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]
from resiliparse.parse.encoding import detect_encoding  # pyright: ignore[reportMissingModuleSource]

from pairmill.catalog.terms.controls import printable

MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16le"), (codecs.BOM_UTF16_BE, "utf-16be"))
CHARSET = re.compile(r"""charset\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;"']+))""", re.IGNORECASE)
# The usual start of a page that declares its charset: no other element stands before the <meta>. Takes 2 of 200 us.
USUAL_META = re.compile(
    rb"""\s*+(?:<\?xml[^<>\0]*+>\s*+)?(?:<!doctype[^<>\0]*+>\s*+)?(?:<html(?:\s++[\w:.-]++="[^"<>\0]*+")*+\s*+>\s*+)?"""
    rb"""(?:<head>\s*+)?<meta\s++(?:charset="([\w-]++)"|http-equiv="content-type"\s++content="([\w/]++;\s*+charset="""
    rb"""[\w-]++)")\s*+/?>""",
    re.IGNORECASE,
)
XML = re.compile(rb"""<\?xml[^>]*?\sencoding\s*=\s*["']([^"'>]{0,64})""")
LONGEST_LABEL = 64  # characters, blanks around it included
# Bytes. Browsers search the first ones for a declaration, and go on to the end of <head>. The bound is for libxml2,
# which compares each attribute of a tag with those before it.
ALWAYS_SEARCHED, MOST_SEARCHED = 1024, 128 * 2**10
# By these names Python has codecs that lack letters which the standard's decoders read, such as "①".
FULLER = {"gbk": "gb18030", "euc_jp": "euc_jis_2004", "iso2022_jp": "iso2022_jp_ext"}
# What no browser guesses: of a short text like "niño" the detector says iso8859-10.
NEVER_GUESSED = re.compile(r"(iso8859-(3|1[0456])|mac|utf).*")
# Of two encodings for one language, Windows' has letters where ISO's has the control codes C1, which no page holds.
TWINS = {"iso8859-2": "cp1250", "iso8859-7": "cp1253", "iso8859-8": "cp1255", "iso8859-13": "cp1257"}
C1, BEYOND = re.compile(rb"[\x80-\x9f]"), re.compile(rb"[\x80-\xff][^\s<]*")
ASCII, MOST_WORDS = bytes(range(128)), 10_000
# The largest share of undecodable characters in a page or a caption.
MAX_BAD = 0.1


class Decoded(NamedTuple):
    """Decoded text and the charset used."""

    text: str
    charset: str  # as Python names the codec
    n_bad: int  # undecodable bytes, which are U+FFFD in ``text``, and control codes, which are removed


def decode_text(data: bytes, content_type: str = "") -> Decoded:
    """Decode a page or caption sent with this Content-Type header ('' for none). Never raises.

    A byte order mark outranks the header, as in browsers ("decode" of the Encoding Standard); the header outranks the
    page's own declaration.
    """
    for mark, label in MARKS:
        if data.startswith(mark):
            return decode_as(data[len(mark) :], _codec(label) or guess_codec(data))
    return decode_as(
        data, _codec_of_label(content_type) or _unmarked_utf16(data) or _declared_codec(data) or guess_codec(data)
    )


def guess_codec(data: bytes) -> codecs.CodecInfo:
    """Guess the codec of bytes without a declaration: UTF-8 if most bytes beyond ASCII fit, else by letters or cp1252.

    So one wrong byte in UTF-8, or a caption that is cut inside a letter, costs one letter.
    """
    if not data.isascii():
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(data)  # a letter cut at the end does not count
        n_beyond, n_bad = len(text) - len(text.encode("ascii", "ignore")), text.count("\ufffd")
        if n_beyond > 2 * n_bad:
            return codecs.lookup("utf-8")
    elif b"\x1b" not in data:  # with which ISO-2022-JP begins its letters
        return codecs.lookup("utf-8")
    whole = _detect(data)
    words = [found[0] for found in islice(BEYOND.finditer(data), MOST_WORDS)]
    parts = [_detect(b" ".join(words[at::3])) for at in range(3)] if len(words) >= 3 else []
    common = max(parts, key=parts.count, default=whole)
    # The detector rules an encoding out for one byte that it lacks; two parts without the byte show what the rest is.
    if parts.count(common) > 1 and 0 < decode_as(data, common).n_bad <= 1 + len(words) // 100:
        return common
    return whole


def _detect(data: bytes) -> codecs.CodecInfo:
    """Return the decoder that the detector names, or its twin of Windows; cp1252 if unsure, or if the text is equal."""
    label = (detect_encoding(data, html5_compatible=False) or "").replace("_", "-").replace("iso2022", "iso-2022")
    found = _codec(label) or _codec(label.replace("cp", "windows-"))
    if found is None or NEVER_GUESSED.fullmatch(found.name):
        return codecs.lookup("cp1252")
    if found.name in TWINS and C1.search(data):
        return codecs.lookup(TWINS[found.name])
    high = bytes(set(data.translate(None, ASCII)))
    same = high and found.decode(high, "replace")[0] == high.decode("cp1252", "replace")
    return codecs.lookup("cp1252") if same else found


def stream_encoding(head: bytes) -> str:
    """Return the Python encoding of a text table that begins with ``head``: UTF-16, marked or not, else UTF-8."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    unmarked = _unmarked_utf16(head)
    return unmarked.name if unmarked else "utf-8-sig"


def decode_as(data: bytes, codec: codecs.CodecInfo) -> Decoded:
    """Decode ``data`` with ``codec``, remove control codes, and count the bad characters."""
    try:
        text, n_bad = codec.decode(data)[0], 0
    except UnicodeError:
        text = codec.decode(data, "replace")[0]
        n_bad = text.count("\ufffd")
    kept = printable(text)
    return Decoded(kept, codec.name, len(text) - len(kept) + n_bad)


def _codec(label: str) -> codecs.CodecInfo | None:
    """Return the decoder for a label of the Encoding Standard; None for any other label, which browsers ignore."""
    return _codec_of(label) if 0 < len(label) <= LONGEST_LABEL else None


@lru_cache(maxsize=1024)
def _codec_of(label: str) -> codecs.CodecInfo | None:
    if (found := webencodings.lookup(label)) is None:
        return None
    fuller = FULLER.get(found.codec_info.name)
    return codecs.lookup(fuller) if fuller else found.codec_info


def _codec_of_label(text: str) -> codecs.CodecInfo | None:
    """Return the decoder that ``charset=…`` names, in a Content-Type header or the like, or None."""
    found = CHARSET.search(text)
    # Two headers of one name are joined by a comma.
    return _codec((found[1] or found[2] or found[3] or "").partition(",")[0]) if found else None


def _unmarked_utf16(data: bytes) -> codecs.CodecInfo | None:
    """Detect UTF-16 without a byte order mark: in Latin text and in markup every second byte is NUL."""
    start = data[:512]
    if len(start) < 4 or b"\0" not in start:
        return None
    even, odd = start[0::2].count(0), start[1::2].count(0)
    if odd > len(start) * 0.3 and even < len(start) * 0.05:
        return codecs.lookup("utf-16-le")
    return codecs.lookup("utf-16-be") if even > len(start) * 0.3 and odd < len(start) * 0.05 else None


def _declared_codec(data: bytes) -> codecs.CodecInfo | None:
    """Return the decoder that a page's <meta> declares, else its XML declaration; None if neither does."""
    start = data[:MOST_SEARCHED]
    if usual := USUAL_META.match(start):
        label, content = ((part or b"").decode() for part in usual.groups())
        if found := _readable(_codec(label) or _codec_of_label(content)):
            return found
    if b"charset" in start.lower():
        parser = etree.HTMLPullParser(events=("start",), tag=("meta", "body"), encoding="iso-8859-1")
        for at in range(0, len(start), ALWAYS_SEARCHED):
            parser.feed(start[at : at + ALWAYS_SEARCHED])
            in_body = False
            for _, element in parser.read_events():
                in_body |= element.tag == "body"
                if in_body and at:
                    break
                if found := _meta_codec(element):
                    return found
            if in_body:
                break
    declared = XML.match(data)
    return _codec(declared[1].decode("latin-1")) if declared else None


def _meta_codec(element: etree._Element) -> codecs.CodecInfo | None:
    """Return the decoder that one <meta> declares, or None."""
    label = element.get("charset")
    codec = _codec(label) if label else None
    if label is None and (element.get("http-equiv") or "").strip().lower() == "content-type":
        codec = _codec_of_label(element.get("content") or "")
    return _readable(codec)


def _readable(codec: codecs.CodecInfo | None) -> codecs.CodecInfo | None:
    """Replace UTF-16 by UTF-8: a declaration that is readable as bytes is not in UTF-16 (HTML, prescan)."""
    return _codec("utf-8") if codec and codec.name.startswith("utf-16") else codec
