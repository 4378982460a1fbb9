"""Read the EXIF tags of an image file as text."""

from __future__ import annotations

import io

from PIL import ExifTags, Image

from pairmill.ops.image.header import HOSTILE

# Some EXIF blocks hold whole previews and maker notes; a person reads the first few tags only.
MOST_TAGS, MOST_LETTERS = 64, 200
MARKS = (b"Exif\0\0", b"eXIf", b"EXIF", b"II*\0", b"MM\0*")


def exif(data: bytes) -> dict[str, str]:
    """Read the base and Exif directories as {tag name: text}, such as {"Make": "…", "FNumber": "2.8"}; never raises.

    Returns at most MOST_TAGS tags of MOST_LETTERS characters each; {} if there are none or the block is broken.
    """
    if not any(mark in data for mark in MARKS):
        return {}
    try:
        with Image.open(io.BytesIO(data)) as image:
            block = image.getexif()
            tags = {**block, **block.get_ifd(ExifTags.IFD.Exif)}
    except HOSTILE:
        return {}
    named = {ExifTags.TAGS.get(tag, str(tag)): value for tag, value in tags.items()}
    shown = {name: _printable(value) for name, value in named.items() if name not in ("MakerNote", "UserComment")}
    return {name: shown[name] for name in sorted(name for name in shown if shown[name])[:MOST_TAGS]}


def _printable(value: object) -> str:
    """Convert a tag's value to printable text of at most MOST_LETTERS characters; non-ASCII bytes become hex."""
    if isinstance(value, bytes):
        value = value.decode("latin-1") if value.isascii() else value[:32].hex()
    text = "".join(letter for letter in str(value) if letter.isprintable())
    return text.encode("utf-8", "replace").decode().strip()[:MOST_LETTERS]
