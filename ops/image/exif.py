"""Read a picture's EXIF tags as text."""

from __future__ import annotations

import io

from PIL import ExifTags, Image

from pairmill.ops.image.header import HOSTILE

# EXIF blocks of whole previews and maker notes exist; a person reads the first few tags.
MOST_TAGS, MOST_LETTERS = 64, 200
MARKS = (b"Exif\0\0", b"eXIf", b"EXIF", b"II*\0", b"MM\0*")


def exif(data: bytes) -> dict[str, str]:
    """Read the base and Exif directories as {tag name: text}, e.g. {"Make": "…", "FNumber": "2.8"}; {} when there are
    none or they are broken. At most MOST_TAGS tags of MOST_LETTERS letters. Never raises."""
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
    if isinstance(value, bytes):
        value = value.decode("latin-1") if value.isascii() else value[:32].hex()
    text = "".join(letter for letter in str(value) if letter.isprintable())
    return text.encode("utf-8", "replace").decode().strip()[:MOST_LETTERS]
