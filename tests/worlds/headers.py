"""Images in every supported format and variant, and headers that claim any size."""

import struct
import zlib

from tests.worlds.pictures import encode, picture, turned_exif

FORMATS = {
    "jpeg": [{}, {"progressive": True}, {"quality": 30, "subsampling": 2}],
    "png": [{}, {"optimize": True}],
    "webp": [{}, {"lossless": True}],
    "gif": [{}],
    "bmp": [{}],
    "tiff": [{}, {"compression": "tiff_lzw"}],
    "avif": [{"speed": 10}],
}
ENCODINGS = [(format, options) for format, variants in FORMATS.items() for options in variants]


def png_of(width, height):
    """Return a PNG whose valid header claims any size, with a few bytes of data."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


SEEDS = [encode(picture(size=(24, 16)), format.upper(), **options) for format, options in ENCODINGS]
SEEDS += [encode(picture(size=(24, 16)), "WEBP", exif=turned_exif(6)), png_of(5, 5)]
