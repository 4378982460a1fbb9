"""Over two hundred odd pictures, made without chance: files that a viewer shows, or that a tool may stumble over.

`odd_pictures` maps a name, such as 'png/grey-2-key', to the bytes. Half of them, `held`, were left unread while the
decoder was mended.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache

import numpy as np
import simplejpeg
from PIL import Image

from tests.worlds.arithmetic import ARITHMETIC, ARITHMETIC_PROGRESSIVE
from tests.worlds.pictures import encode, turned_exif

W, H = 40, 28
X, Y = np.meshgrid(np.arange(W), np.arange(H))
MARK = (X < 10) & (Y < 8)  # tells which corner is the first
RED, GREEN, BLUE = X / (W - 1), Y / (H - 1), MARK.astype(float)
SHARES = np.stack([RED, GREEN, BLUE], -1)  # (h, w, 3), 0 to 1
GREY = np.where(MARK, 1.0, RED * 0.9)
ALPHA = np.where(Y < H // 2, 1.0, X / (W - 1))
RGB = Image.fromarray((SHARES * 255).round().astype(np.uint8))
L = Image.fromarray((GREY * 255).round().astype(np.uint8))
RGBA = RGB.copy()
RGBA.putalpha(Image.fromarray((ALPHA * 255).astype(np.uint8)))
XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
EXIF = turned_exif(6).tobytes()
BIG_ENDIAN = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
AS_LONG = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0\x06\0\0\0\0\0\0\0"


def odd_pictures() -> dict[str, bytes]:
    """Return every picture by its name."""
    makers = {"jpeg": jpegs, "png": pngs, "gif": gifs, "bmp": bmps, "webp": webps, "tiff": tiffs, "avif": avifs}
    found = {f"{kind}/{name}": data for kind, make in makers.items() for name, data in make()}
    return dict(sorted(found.items()))


def held(names: list[str]) -> list[str]:
    """Return every second name in order."""
    return sorted(names)[1::2]


def segment(marker: int, body: bytes) -> bytes:
    """Return one segment of a JPEG."""
    return struct.pack(">BBH", 255, marker, len(body) + 2) + body


def inserted(data: bytes, *more: bytes) -> bytes:
    """Put bytes behind a JPEG's JFIF segment, or behind SOI if it has none."""
    at = 20 if data[2:4] == b"\xff\xe0" else 2
    return data[:at] + b"".join(more) + data[at:]


def of_one_colour(luma: tuple[int, int], chroma: tuple[int, int]) -> bytes:
    """Return a JPEG of one colour, one MCU large, with any sampling factors: after its first block no value changes."""
    size = 8 * max(luma[0], chroma[0]), 8 * max(luma[1], chroma[1])
    plain = encode(RGB.resize(size), quality=90, subsampling="4:4:4")
    frame, scan = plain.index(b"\xff\xc0"), plain.index(b"\xff\xda")
    factors = [across << 4 | down for across, down in (luma, chroma, chroma)]
    head = bytearray(plain[: scan + 14])
    head[frame + 11 : frame + 18 : 3] = bytes(factors)
    # The codes of Annex K.3: a difference of category 5 and its bits, no difference, end of block.
    codes = (("110" + "11111", "00", "1010"), ("11110" + "11111", "00", "00"), ("11110" + "00000", "00", "00"))
    bits = "".join(
        first + end + (same + end) * (across * down - 1)
        for (first, same, end), (across, down) in zip(codes, (luma, chroma, chroma), strict=True)
    )
    bits += "1" * (-len(bits) % 8)
    coded = bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8)).replace(b"\xff", b"\xff\0")
    return bytes(head) + coded + b"\xff\xd9"


def jpegs() -> Iterator[tuple[str, bytes]]:
    """Yield odd JPEGs."""
    plain = encode(RGB, quality=95)
    frame, scan = plain.index(b"\xff\xc0"), plain.index(b"\xff\xda")
    for name in ("4:4:4", "4:2:2", "4:2:0"):
        yield f"sampling-{name}", encode(RGB, quality=90, subsampling=name)
    for name in ("440", "411", "Gray"):
        yield f"sampling-{name}", simplejpeg.encode_jpeg(np.asarray(RGB), 90, "RGB", name)
    for luma, chroma in (((4, 2), (1, 1)), ((2, 2), (2, 1)), ((3, 1), (1, 1)), ((1, 1), (2, 1))):
        yield f"sampling-{luma[0]}x{luma[1]}-{chroma[0]}x{chroma[1]}", of_one_colour(luma, chroma)
    for name, options in {"progressive": {"progressive": True}, "restarts": {"restart_marker_blocks": 2},
                          "rgb": {"keep_rgb": True}, "low": {"quality": 3}}.items():  # fmt: skip
        yield name, encode(RGB, **({"quality": 90} | options))
    for size in ((1, 1), (7, 9), (8, 8), (17, 1), (1, 33)):
        yield f"size-{size[0]}x{size[1]}", encode(RGB.resize(size), quality=90)
    yield "grey", encode(L, quality=90)
    yield "grey-progressive", encode(L, quality=90, progressive=True)
    yield "arithmetic", ARITHMETIC
    yield "arithmetic-progressive", ARITHMETIC_PROGRESSIVE
    cmyk = encode(RGB.convert("CMYK"), quality=90)
    adobe = cmyk.index(b"\xff\xee")
    yield "cmyk", cmyk
    yield "cmyk-without-adobe", cmyk[:adobe] + cmyk[adobe + 16 :]
    yield "ycck", cmyk.replace(b"Adobe\0d\0\0\0\0\0", b"Adobe\0d\0\0\0\0\x02")
    for code in range(1, 9):
        yield f"exif-{code}", encode(RGB, quality=90, exif=turned_exif(code))
    yield "exif-big-endian", inserted(plain, segment(0xE1, BIG_ENDIAN))
    yield "exif-long", inserted(plain, segment(0xE1, AS_LONG))
    yield "exif-0", inserted(plain, segment(0xE1, BIG_ENDIAN.replace(b"\0\x06", b"\0\0")))
    yield "exif-9", inserted(plain, segment(0xE1, BIG_ENDIAN.replace(b"\0\x06", b"\0\x09")))
    yield "exif-behind-frame", plain[:scan] + segment(0xE1, BIG_ENDIAN) + plain[scan:]
    yield (
        "exif-twice",
        inserted(plain, segment(0xE1, BIG_ENDIAN), segment(0xE1, BIG_ENDIAN.replace(b"\0\x06", b"\0\3"))),
    )
    yield "exif-cut", inserted(plain, segment(0xE1, BIG_ENDIAN[:20]))
    yield "xmp", inserted(plain, segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP))
    yield "xmp-and-exif", inserted(plain, segment(0xE1, b"http://ns.adobe.com/xap/1.0/\0" + XMP),
                                   segment(0xE1, BIG_ENDIAN.replace(b"\0\x06", b"\0\3")))  # fmt: skip
    yield "exif-large", inserted(plain, segment(0xE1, BIG_ENDIAN + bytes(65_000)))
    yield "comments", inserted(plain, *[segment(0xFE, b"a" * 60_000)] * 20)
    yield "jfif-9", plain.replace(b"JFIF\0\1", b"JFIF\0\x09")
    yield "jfif-9-cut", plain.replace(b"JFIF\0\1", b"JFIF\0\x09")[: len(plain) * 2 // 3]
    yield "sos-odd", plain[: scan + 11] + b"\0\0\0" + plain[scan + 14 :]
    yield "sos-odd-cut", (plain[: scan + 11] + b"\0\0\0" + plain[scan + 14 :])[: len(plain) * 5 // 6]
    yield (
        "sos-odd-cut-with-end",
        (plain[: scan + 11] + b"\0\0\0" + plain[scan + 14 :])[: len(plain) * 5 // 6] + b"\xff\xd9",
    )
    yield "adobe-unknown", inserted(plain, segment(0xEE, b"Adobe\0d\0\0\0\0\x07"))
    yield "icc-wrong", inserted(plain, segment(0xE2, b"ICC_PROFILE\0\x05\x02" + bytes(40)))
    yield "icc-of-nothing", encode(RGB, quality=90, icc_profile=b"no profile at all")
    yield "garbage-before-frame", plain[:frame] + b"\1\2\3\4" + plain[frame:]
    yield "garbage-before-end", plain[:-2] + bytes(30) + plain[-2:]
    yield "garbage-behind", plain + b"GARBAGE" * 50
    yield "padded-markers", plain[:frame] + b"\xff" * 9 + plain[frame:]
    yield "without-end", plain[:-2]
    yield "twice", plain + plain
    yield "start-twice", b"\xff\xd8" + plain
    yield "mpo", encode(RGB, "MPO", save_all=True, append_images=[L.convert("RGB")])
    yield "cut-in-header", plain[: frame + 12]
    yield "cut-half", plain[: (scan + len(plain)) // 2]
    yield "cut-half-with-end", plain[: (scan + len(plain)) // 2] + b"\xff\xd9"
    yield "bad-code", plain[: scan + 60] + b"\xfe" * 40 + plain[scan + 100 :]
    restarts = encode(RGB, quality=90, restart_marker_blocks=2)
    yield "restart-lost", restarts.replace(b"\xff\xd1", b"\xff\xd3", 1)
    progressive = encode(RGB, quality=90, progressive=True)
    last = progressive.rindex(b"\xff\xda") + 30
    yield "progressive-cut", progressive[:last]
    yield "progressive-cut-with-end", progressive[:last] + b"\xff\xd9"


def chunk(kind: bytes, body: bytes, wrong: bool = False) -> bytes:
    """Return one chunk of a PNG, with a wrong checksum if asked."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body) ^ wrong)


def packed(samples: np.ndarray, depth: int, order: str = ">") -> list[bytes]:
    """Pack samples (h, w, c) of ``depth`` bits into rows of bytes."""
    rows = samples.reshape(len(samples), -1)
    if depth >= 8:
        return [row.astype(f"{order}u{depth // 8}").tobytes() for row in rows]
    bits = (rows[..., None] >> np.arange(depth)[::-1] & 1).reshape(len(rows), -1)
    return [row.tobytes() for row in np.packbits(bits.astype(np.uint8), axis=1)]


ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))


def png(
    samples: np.ndarray, depth: int, colour: int, before: bytes = b"", after: bytes = b"", interlaced=False
) -> bytes:
    """Return a PNG of samples (h, w, c), with chunks before and after its pixels."""
    height, width = samples.shape[:2]
    parts = [samples[y::dy, x::dx] for y, x, dy, dx in ADAM7] if interlaced else [samples]
    rows = b"".join(b"\0" + row for part in parts if part.size for row in packed(part, depth))
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced)
    pixels = chunk(b"IDAT", zlib.compress(rows))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + before + pixels + after + chunk(b"IEND", b"")


def levels(shares: np.ndarray, depth: int) -> np.ndarray:
    """Return shares 0 to 1 as integers of ``depth`` bits, (h, w, c)."""
    found = (shares * (2**depth - 1)).round().astype(np.int64)
    return found if found.ndim == 3 else found[..., None]


def pngs() -> Iterator[tuple[str, bytes]]:
    """Yield odd PNGs."""
    both, all_four = np.dstack([GREY, ALPHA]), np.dstack([SHARES, ALPHA])
    for depth in (1, 2, 4, 8, 16):
        values = levels(GREY, depth)
        key = int(values[20, 30, 0])
        yield f"grey-{depth}", png(values, depth, 0)
        yield f"grey-{depth}-interlaced", png(values, depth, 0, interlaced=True)
        yield f"grey-{depth}-key", png(values, depth, 0, chunk(b"tRNS", struct.pack(">H", key)))
        if depth <= 8:
            n = 2**depth
            palette = b"".join(bytes((255 * i // (n - 1), 90, 255 - 255 * i // (n - 1))) for i in range(n))
            indexes, clear = levels(RED, depth), bytes(range(0, min(n, 250), 1))
            yield f"palette-{depth}", png(indexes, depth, 3, chunk(b"PLTE", palette))
            yield f"palette-{depth}-alpha", png(indexes, depth, 3, chunk(b"PLTE", palette) + chunk(b"tRNS", clear))
            yield f"palette-{depth}-short", png(indexes, depth, 3, chunk(b"PLTE", palette[: 3 * (n // 2)]))
    for depth in (8, 16):
        values = levels(SHARES, depth)
        key = struct.pack(">HHH", *values[20, 30])
        yield f"rgb-{depth}", png(values, depth, 2)
        yield f"rgb-{depth}-interlaced", png(values, depth, 2, interlaced=True)
        yield f"rgb-{depth}-key", png(values, depth, 2, chunk(b"tRNS", key))
        yield f"grey-alpha-{depth}", png(levels(both, depth), depth, 4)
        yield f"rgb-alpha-{depth}", png(levels(all_four, depth), depth, 6)
    high = levels(SHARES, 16)
    high[10:14, 20:30] = high[20, 30] ^ 1  # another value with the same high bytes: visible
    yield "rgb-16-key-near", png(high, 16, 2, chunk(b"tRNS", struct.pack(">HHH", *high[20, 30])))
    values, text = levels(SHARES, 8), zlib.compress(bytes(3_000_000))
    for name, before in {
        "text-large-ztxt": chunk(b"zTXt", b"Comment\0\0" + text),
        "text-large-itxt": chunk(b"iTXt", b"Comment\0\1\0\0\0" + text),
        "text-many": chunk(b"zTXt", b"Comment\0\0" + zlib.compress(bytes(900_000))) * 80,
        "icc-large": chunk(b"iCCP", b"x\0\0" + text),
        "icc-broken": chunk(b"iCCP", b"x\0\0" + b"not deflated"),
        "gamma": chunk(b"gAMA", struct.pack(">I", 100_000)),
        "gamma-0": chunk(b"gAMA", struct.pack(">I", 0)),
        "gamma-wrong-checksum": chunk(b"gAMA", struct.pack(">I", 45_455), wrong=True),
        "text-wrong-checksum": chunk(b"tEXt", b"Comment\0hello", wrong=True),
        "time-wrong-checksum": chunk(b"tIME", bytes(7), wrong=True),
        "private-wrong-checksum": chunk(b"prVt", b"what", wrong=True),
        "srgb-short": chunk(b"sRGB", b""),
        "phys-short": chunk(b"pHYs", b"\0"),
        "background": chunk(b"bKGD", struct.pack(">HHH", 255, 0, 0)),
        "palette-suggested": chunk(b"PLTE", bytes(30)),
        "significant": chunk(b"sBIT", b"\5\6\5"),
        "exif": chunk(b"eXIf", EXIF.removeprefix(b"Exif\0\0")),
        "exif-wrong-checksum": chunk(b"eXIf", EXIF.removeprefix(b"Exif\0\0"), wrong=True),
        "xmp": chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + XMP),
        "empty-pixels": chunk(b"IDAT", b""),
        "animation-of-one": chunk(b"acTL", struct.pack(">II", 1, 0)),
        "cicp": chunk(b"cICP", b"\x0c\x0d\0\1"),
    }.items():
        yield name, png(values, 8, 2, before)
    plain = png(values, 8, 2)
    at = plain.index(b"IDAT")
    yield "exif-behind", png(values, 8, 2, after=chunk(b"eXIf", EXIF.removeprefix(b"Exif\0\0")))
    yield "text-behind-wrong-checksum", png(values, 8, 2, after=chunk(b"tEXt", b"a\0b", wrong=True))
    yield "garbage-behind", plain + b"GARBAGE" * 50
    yield "without-end", plain[:-12]
    yield "pixels-wrong-checksum", plain[:-16] + bytes(4) + plain[-12:]
    yield "header-wrong-checksum", plain[:29] + bytes(4) + plain[33:]
    yield "cut-in-pixels", plain[: (at + len(plain)) // 2]
    yield "cut-in-header", plain[:27]
    yield "alpha-wrong-checksum", png(levels(all_four, 8), 8, 6, chunk(b"tEXt", b"a\0b", wrong=True))
    wide = levels(GREY, 16)
    key = chunk(b"tRNS", struct.pack(">H", int(wide[20, 30, 0])))
    yield "grey-16-key-large-text", png(wide, 16, 0, chunk(b"zTXt", b"a\0\0" + text) + key)
    yield "animated", encode(RGB, "PNG", save_all=True, append_images=[L.convert("RGB")], duration=9)
    yield (
        "animated-other-default",
        encode(RGB, "PNG", save_all=True, append_images=[L.convert("RGB")], default_image=True),
    )


def gifs() -> Iterator[tuple[str, bytes]]:
    """Yield odd GIFs."""
    indexed = RGB.quantize(64)
    plain = encode(indexed, "GIF")
    yield "plain", plain
    yield "old", b"GIF87a" + encode(L, "GIF")[6:]
    yield "interlaced", encode(indexed, "GIF", interlace=1)
    yield "transparent", encode(indexed, "GIF", transparency=int(np.asarray(indexed)[20, 30]))
    yield "alpha", encode(RGBA, "GIF")
    yield "animated", encode(RGB, "GIF", save_all=True, append_images=[L.convert("RGB")], duration=9)
    yield "comment", encode(indexed, "GIF", comment=b"c" * 5000)
    yield "without-end", plain[:-1]
    yield "garbage-behind", plain + b"GARBAGE" * 50
    yield "cut", plain[: len(plain) * 2 // 3]
    canvas = struct.pack("<HH", W + 10, H + 12)
    frame = plain.index(b"\x2c" + struct.pack("<HHHH", 0, 0, W, H))
    moved = plain[:frame] + b"\x2c" + struct.pack("<HHHH", 4, 6, W, H) + plain[frame + 9 :]
    yield "frame-inside", moved[:6] + canvas + moved[10:]
    yield "frame-inside-background", moved[:6] + canvas + moved[10:11] + b"\x05" + moved[12:]
    yield "frame-beyond", plain[:6] + struct.pack("<HH", W - 8, H - 8) + plain[10:]
    yield "canvas-0", plain[:6] + bytes(4) + plain[10:]
    clear = encode(indexed, "GIF", transparency=3)
    at = clear.index(b"\x2c" + struct.pack("<HHHH", 0, 0, W, H))
    moved = clear[:at] + b"\x2c" + struct.pack("<HHHH", 4, 6, W, H) + clear[at + 9 :]
    yield "frame-inside-transparent", moved[:6] + canvas + moved[10:]


def bmp(rows: list[bytes], bits: int, palette: bytes = b"", masks: bytes = b"", compression: int = 0, top_down=False,
        more: bytes = b"", size: int = 40) -> bytes:  # fmt: skip
    """Return a BMP of packed rows, the top one first."""
    padded = [row + bytes(-len(row) % 4) for row in (rows if top_down else rows[::-1])]
    pixels = b"".join(padded) if compression not in (1, 2) else b"".join(rows)
    head = struct.pack("<IiiHHIIiiII", size, W, -H if top_down else H, 1, bits, compression, len(pixels), 0, 0,
                       len(palette) // 4, 0)  # fmt: skip
    body = head + more + masks + palette
    return b"BM" + struct.pack("<IHHI", 14 + len(body) + len(pixels), 0, 0, 14 + len(body)) + body + pixels


def bmps() -> Iterator[tuple[str, bytes]]:
    """Yield odd BMPs."""
    bgr = levels(SHARES, 8)[..., ::-1]
    alpha = levels(ALPHA, 8)
    yield "rgb", encode(RGB, "BMP")
    yield "top-down", bmp(packed(bgr, 8), 24, top_down=True)
    yield "rgb-32", bmp(packed(np.dstack([bgr, alpha]), 8), 32)
    yield "rgb-32-zero", bmp(packed(np.dstack([bgr, alpha * 0]), 8), 32)
    masks = struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)
    v4 = masks + b"BGRs" + bytes(48)
    yield "alpha-v4", bmp(packed(np.dstack([bgr, alpha]), 8), 32, compression=3, more=v4, size=108)
    yield "alpha-v4-all-clear", bmp(packed(np.dstack([bgr, alpha * 0]), 8), 32, compression=3, more=v4, size=108)
    five = levels(SHARES, 5)
    yield "rgb-555", bmp(packed((five[..., :1] << 10 | five[..., 1:2] << 5 | five[..., 2:]), 16, "<"), 16)
    wide = np.dstack([five[..., 0], levels(SHARES, 6)[..., 1], five[..., 2]])
    of_565 = packed((wide[..., :1] << 11 | wide[..., 1:2] << 5 | wide[..., 2:]), 16, "<")
    yield "rgb-565", bmp(of_565, 16, compression=3, masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F))
    for bits in (1, 4, 8):
        n = 2**bits
        palette = b"".join(bytes((255 - 255 * i // (n - 1), 90, 255 * i // (n - 1), 0)) for i in range(n))
        yield f"palette-{bits}", bmp(packed(levels(RED, bits), bits), bits, palette)
    short = b"".join(bytes((i, 90, 255 - i, 0)) for i in range(200))
    yield "palette-short", bmp(packed(levels(RED, 8), 8), 8, short)
    palette = b"".join(bytes((i, 90, 255 - i, 0)) for i in range(256))
    runs = [b"".join(bytes((1, value)) for value in row.tolist()) + b"\0\0" for row in levels(RED, 8)[::-1, :, 0]]
    yield "runs-8", bmp([*runs, b"\0\1"], 8, palette, compression=1)
    yield "runs-8-skipping", bmp([b"\5\x20\0\2\3\2\7\x60\0\0\0\2\2\4\x06\x90\0\1"], 8, palette, compression=1)
    four = b"".join(bytes((17 * i, 90, 255 - 17 * i, 0)) for i in range(16))
    yield "runs-4", bmp([b"\x28\x12\0\0\x14\x34\0\4\x56\x78\0\0\0\1"], 4, four, compression=2)
    plain = bmp(packed(bgr, 8), 24)
    yield "cut", plain[: len(plain) * 2 // 3]
    old = struct.pack("<IHHHH", 12, W, H, 1, 24)
    pixels = plain[54:]
    yield "os2", b"BM" + struct.pack("<IHHI", 26 + len(pixels), 0, 0, 26) + old + pixels


def riff(data: bytes, *more: tuple[bytes, bytes]) -> bytes:
    """Append chunks to a WebP file."""
    tail = b"".join(kind + struct.pack("<I", len(body)) + body + bytes(len(body) % 2) for kind, body in more)
    return b"RIFF" + struct.pack("<I", len(data) - 8 + len(tail)) + data[8:] + tail


def webps() -> Iterator[tuple[str, bytes]]:
    """Yield odd WebPs."""
    plain = encode(RGB, "WEBP", quality=90)
    yield "lossy", plain
    yield "lossless", encode(RGB, "WEBP", lossless=True)
    yield "alpha-lossy", encode(RGBA, "WEBP", quality=90)
    yield "alpha-lossless", encode(RGBA, "WEBP", lossless=True)
    yield "odd-size", encode(RGB.resize((39, 27)), "WEBP", quality=90)
    yield "size-1x1", encode(RGB.resize((1, 1)), "WEBP", quality=90)
    for code in (2, 3, 6, 8):
        yield f"exif-{code}", encode(RGB, "WEBP", quality=90, exif=turned_exif(code))
    yield "exif-with-prefix", encode(RGB, "WEBP", quality=90, exif=BIG_ENDIAN)
    yield "xmp", encode(RGB, "WEBP", quality=90, xmp=XMP)
    yield "icc-of-nothing", encode(RGB, "WEBP", quality=90, icc_profile=b"no profile at all")
    yield "animated", encode(RGB, "WEBP", save_all=True, append_images=[L.convert("RGB")], duration=9)
    yield "unknown-chunk", riff(encode(RGB, "WEBP", quality=90, xmp=XMP), (b"ABCD", b"odd"))
    yield "garbage-behind", plain + b"GARBAGE" * 50
    yield "cut", plain[: len(plain) * 2 // 3]


def tiff(samples: np.ndarray, bits: int, photometric: int, tags: tuple = (), order: str = "<", big=False) -> bytes:
    """Return a TIFF of one strip, with more ``tags``: (tag, type, value or values), type 2, 7 bytes, 3, 4 ints."""
    height, width, n = samples.shape
    code = samples.dtype.str[1:] if samples.dtype.kind == "f" else ""
    pixels = b"".join([row.astype(order + code).tobytes() for row in samples] if code else packed(samples, bits, order))
    sizes = {2: 1, 3: 2, 4: 4, 7: 1}
    base, start = (16, ">H") if big else (8, "")
    entries = {256: (4, [width]), 257: (4, [height]), 258: (3, [bits] * n), 259: (3, [1]), 262: (3, [photometric]),
               273: (4, [base]), 277: (3, [n]), 278: (4, [height]), 279: (4, [len(pixels)])}  # fmt: skip
    entries |= {tag: (kind, value if isinstance(value, (bytes, list)) else [value]) for tag, kind, value in tags}
    pixels += bytes(len(pixels) % 2)
    inline, word, count = (8, "Q", "Q") if big else (4, "I", "H")
    table, rest, at = (
        b"",
        b"",
        base + len(pixels) + struct.calcsize("<" + count) + (20 if big else 12) * len(entries) + inline,
    )
    for tag, (kind, value) in sorted(entries.items()):
        body = (
            value
            if isinstance(value, bytes)
            else struct.pack(f"{order}{len(value)}{'H' if kind == 3 else 'I'}", *value)
        )
        n_values = len(body) // sizes[kind]
        held_at = body.ljust(inline, b"\0")
        if len(body) > inline:
            held_at, rest = struct.pack(order + word, at + len(rest)), rest + body + bytes(len(body) % 2)
        table += struct.pack(f"{order}HH{word}", tag, kind, n_values) + held_at
    mark = (b"II" if order == "<" else b"MM") + struct.pack(order + "H", 43 if big else 42)
    head = mark + (
        struct.pack(order + "HHQ", 8, 0, base + len(pixels)) if big else struct.pack(order + "I", base + len(pixels))
    )
    assert start is not None and len(head) == base
    return head + pixels + struct.pack(order + count, len(entries)) + table + bytes(inline) + rest


def tiffs() -> Iterator[tuple[str, bytes]]:
    """Yield odd TIFFs."""
    for bits in (1, 2, 4, 8, 16):
        for white in (0, 1):
            yield f"grey-{bits}-{'black' if white else 'white'}-is-0", tiff(levels(GREY, bits), bits, white)
    yield "grey-16-white-is-0-big-endian", tiff(levels(GREY, 16), 16, 0, order=">")
    yield "grey-16-big-endian", tiff(levels(GREY, 16), 16, 1, order=">")
    twelve = levels(GREY, 12)[..., 0]
    rows = [
        b"".join(bytes((a >> 4, (a & 15) << 4 | b >> 8, b & 255)) for a, b in row.reshape(-1, 2).tolist())
        for row in twelve
    ]
    for white in (0, 1):
        data = tiff(levels(GREY, 8), 8, white, ((258, 3, 12), (279, 4, len(rows) * len(rows[0]))))
        yield f"grey-12-{'black' if white else 'white'}-is-0", _other_pixels(data, b"".join(rows))
    for name, values in {"float-32": GREY.astype(np.float32), "float-64": GREY.astype(np.float64)}.items():
        yield name, tiff(values[..., None], values.itemsize * 8, 1, ((339, 3, 3),))
        yield f"{name}-white-is-0", tiff(values[..., None], values.itemsize * 8, 0, ((339, 3, 3),))
    yield "float-32-to-255", tiff((GREY * 255).astype(np.float32)[..., None], 32, 1, ((339, 3, 3),))
    yield "grey-32", tiff(levels(GREY, 16), 32, 1)
    yield "grey-16-signed", tiff(levels(GREY, 15), 16, 1, ((339, 3, 2),))
    yield "grey-8-signed", tiff(levels(GREY, 7), 8, 1, ((339, 3, 2),))
    for order in "<>":
        yield f"rgb-16-{'little' if order == '<' else 'big'}", tiff(levels(SHARES, 16), 16, 2, order=order)
    yield "rgb-8", tiff(levels(SHARES, 8), 8, 2)
    yield "rgb-8-big", tiff(levels(SHARES, 8), 8, 2, big=True)
    yield "alpha-8", tiff(levels(np.dstack([SHARES, ALPHA]), 8), 8, 2, ((338, 3, 2),))
    yield "alpha-8-associated", tiff(levels(np.dstack([SHARES * ALPHA[..., None], ALPHA]), 8), 8, 2, ((338, 3, 1),))
    yield "alpha-8-unspecified", tiff(levels(np.dstack([SHARES, ALPHA]), 8), 8, 2, ((338, 3, 0),))
    yield "alpha-16", tiff(levels(np.dstack([SHARES, ALPHA]), 16), 16, 2, ((338, 3, 2),))
    yield "grey-alpha", tiff(levels(np.dstack([GREY, ALPHA]), 8), 8, 1, ((338, 3, 2),))
    yield "cmyk", encode(RGB.convert("CMYK"), "TIFF")
    yield "cmyk-16", tiff(levels(np.dstack([1 - SHARES, SHARES[..., 0] * 0.2]), 16), 16, 5, ((332, 3, 1),))
    yield "lab", encode(Image.merge("LAB", [L, Image.new("L", L.size, 150), Image.new("L", L.size, 110)]), "TIFF")
    yield "ycbcr", encode(RGB.convert("YCbCr"), "TIFF")
    yield "palette", encode(RGB.quantize(64), "TIFF")
    for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "lzma", "zstd"):
        yield f"compressed-{name}", encode(RGB, "TIFF", compression=name)
    for name in ("group3", "group4"):
        yield f"compressed-{name}", encode(L.convert("1", dither=Image.Dither.NONE), "TIFF", compression=name)
    for code in range(2, 9):
        yield f"orientation-{code}", tiff(levels(SHARES, 8), 8, 2, ((274, 3, code),))
    yield "xmp", tiff(levels(SHARES, 8), 8, 2, ((700, 7, XMP),))
    yield "grey-16-white-is-0-turned", tiff(levels(GREY, 16), 16, 0, ((274, 3, 6),))
    yield "pages", encode(RGB, "TIFF", save_all=True, append_images=[L])
    planes = levels(SHARES, 8)
    apart = tiff(planes, 8, 2, ((284, 3, 2), (273, 4, [8 + W * H * n for n in range(3)]), (279, 4, [W * H] * 3)))
    yield "planes-apart", _other_pixels(apart, b"".join(planes[..., n].astype(np.uint8).tobytes() for n in range(3)))
    plain = tiff(levels(SHARES, 8), 8, 2)
    yield "cut", encode(RGB, "TIFF", compression="tiff_lzw")[:-200]
    yield "cut-before-table", plain[: len(plain) // 2]
    yield "tag-odd", tiff(levels(SHARES, 8), 8, 2, ((305, 2, b"\xff\xfe\0"), (65000, 7, b"what")))


def _other_pixels(data: bytes, pixels: bytes) -> bytes:
    """Put other pixels into a TIFF of one strip; they may take more bytes than its own."""
    (at,) = struct.unpack_from("<I", data, 4)
    room = at - 8
    if len(pixels) <= room:
        return data[:8] + pixels + data[8 + len(pixels) :]
    (n,) = struct.unpack_from("<H", data, at)
    moved = bytearray(data)
    for entry in range(at + 2, at + 2 + 12 * n, 12):
        if moved[entry : entry + 2] == struct.pack("<H", 273):
            moved[entry + 8 : entry + 12] = struct.pack("<I", len(data))
    return bytes(moved) + pixels


def avifs() -> Iterator[tuple[str, bytes]]:
    """Yield odd AVIFs."""
    plain = encode(RGB, "AVIF", quality=90, speed=9)
    yield "plain", plain
    yield "alpha", encode(RGBA, "AVIF", quality=95, speed=9)
    yield "sampling-444", encode(RGB, "AVIF", quality=90, speed=9, subsampling="4:4:4")
    yield "grey", encode(L, "AVIF", quality=90, speed=9, subsampling="4:0:0")
    for code in range(2, 9):
        yield f"turned-{code}", encode(RGB, "AVIF", quality=90, speed=9, exif=turned_exif(code))
    # The Exif block says 6; only the first is turned by the file's own boxes as well.
    other, patched = b"\x01\x28\0\x03\0\0\0\x01\0\x06", b"\x01\x12\0\x03\0\0\0\x01\0\x06"
    for name, codes in {"turned-and-exif": {0x0112: 6, 0x0128: 6}, "exif-alone": {0x0128: 6}}.items():
        exif = Image.Exif()
        for tag, value in codes.items():
            exif[tag] = value
        found = encode(RGB, "AVIF", quality=90, speed=9, exif=exif)
        assert other in found
        yield name, found.replace(other, patched)
    yield "xmp", encode(RGB, "AVIF", quality=90, speed=9, xmp=XMP)
    yield "animated", encode(RGB, "AVIF", save_all=True, append_images=[L.convert("RGB")], duration=9, speed=9)
    yield "cut", plain[: len(plain) * 2 // 3]
    yield "cut-in-header", plain[:150]


@cache
def corpus() -> dict[str, bytes]:
    """Return `odd_pictures`, made once a process."""
    return odd_pictures()
