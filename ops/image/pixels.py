"""Decode the bytes of an image to pixels: the one function behind scores, captions, thumbnails and the Python API.

It follows the rules of an image viewer, so that scores, captions and people see the same picture:

- Colour: stored values are taken as sRGB. Colour profiles, gamma and chromaticities are ignored, as the loaders of
  training code ignore them. CMYK becomes RGB by R = (255 - C) * (255 - K) / 255.
- Transparency is blended with white.
- Orientation: the Exif tag turns JPEG, PNG, WebP and TIFF; AVIF is turned by its own boxes (irot, imir) alone. XMP
  turns nothing.
- Gray of over 8 bits is scaled, not clipped, WhiteIsZero inverted. Only the first frame of an animation is read.
- An oddity that changes no pixel is no fault: odd headers, metadata of any size, wrong checksums of metadata. Missing
  or damaged pixels are one: a lenient decoder would fill them with gray.
"""

import math
import re
from collections.abc import Callable
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
from PIL import Image, TiffImagePlugin

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.image import header
from pairmill.ops.image.header import END, HOSTILE, SCAN, StoredSize, TruncatedHeader, opened

# libjpeg's messages for oddities that change no pixel. It tells the first message only: a cut may hide behind one.
ODD_JPEG = re.compile(
    r"extraneous bytes|unknown Adobe|unknown JFIF|Inconsistent progression|Invalid SOS|bad ICC|^Premature end of JPEG",
    re.IGNORECASE,
)
# TurboJPEG's message for rare sampling factors, such as 4:1:0, which libjpeg itself decodes.
ODD_SAMPLING = "Could not determine subsampling"
CUT_JPEG = re.compile(r"premature end|truncat|found marker 0xd9 instead", re.IGNORECASE)
CUT = re.compile(r"truncat|unexpected end|broken data|incomplete|could not create decoder object", re.IGNORECASE)
JFIF, ADOBE, COMMENT = 0xE0, 0xEE, 0xFE
SEQUENTIAL = (0xC0, 0xC1)
# The chunks of a PNG that its pixels depend on.
PNG_PIXELS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")

# Scales, in eighths, for which libjpeg-turbo has fast code. The other scales are slower, most of them slower than full
# size (ms a megapixel: 2/8 1.0, 4/8 1.3, 8/8 1.7, but 3/8 1.4, 5/8 2.4, 6/8 3.0, 7/8 3.9).
HALVINGS = (1, 2, 4)
# Pixels of a Pillow image that are converted at once. A strip takes up to five further images of 4 bytes a pixel. With
# 4 million the peak was 40 MB higher, and conversion a quarter slower.
STRIP = 1_000_000
BITS_PER_SAMPLE, PHOTOMETRIC, WHITE_IS_ZERO = 258, 262, 0
WIDE = ("I", "F", "I;16", "I;16L", "I;16B", "I;16N")

# Of WhiteIsZero over 8 bits, Pillow reads some kinds only, and none inverted: `rgb` inverts.
for _key, _modes in tuple(TiffImagePlugin.OPEN_INFO.items()):
    if _key[1] == 1 and _modes[0] in WIDE:
        TiffImagePlugin.OPEN_INFO.setdefault((_key[0], WHITE_IS_ZERO, *_key[2:]), _modes)


class StoredPixels(NamedTuple):
    """Pixels uint8 (h, w, 3) RGB as stored, possibly decoded at a smaller scale than the ``whole`` (h, w).

    `upright` turns them by ``orientation``.
    """

    pixels: np.ndarray
    whole: tuple[int, int]
    orientation: int


def pixels_of(data: bytes) -> np.ndarray | Fault:
    """Decode an image of any size to its pixels as a viewer shows them, uint8 (h, w, 3) RGB; never raises."""
    found = stored_pixels(data, max_pixels=2**31, max_bytes=2**31)
    return found if isinstance(found, Fault) else np.ascontiguousarray(upright(found.pixels, found.orientation))


def stored_pixels(data: bytes, max_pixels: int, max_bytes: int, least_side: int = 0) -> StoredPixels | Fault:
    """Decode an image in stored orientation; return a Fault if `inspect` refuses it or decoding fails; never raises.

    With ``least_side``, a JPEG is halved by its decoder while its shorter side stays at or above that many pixels.
    """
    if isinstance(found := header.inspect(data, max_pixels, max_bytes), Fault):
        return found
    try:
        stored = header.stored_size(data, found.format)
        if found.format == "jpeg":
            pixels = _jpeg(data, stored, least_side)
        else:
            pixels = _png(data) if found.format == "png" else _by_pillow(data, found.format)
    except (TruncatedHeader, *HOSTILE) as error:
        says_so = (CUT_JPEG if found.format == "jpeg" else CUT).search(str(error))
        cut = says_so or isinstance(error, TruncatedHeader) or header.ends_early(data, found.format)
        cause = "the file ends before its pixels" if isinstance(error, TruncatedHeader) else in_words(error)
        return Fault("", "truncated" if cut else "undecodable", f"{found.format}: {cause}")
    # In other formats than JPEG the first frame may not fill the canvas.
    whole = (stored.height, stored.width) if found.format == "jpeg" else pixels.shape[:2]
    orientation = 1 if found.format == "tiff" else stored.orientation  # Pillow has already rotated a TIFF
    return StoredPixels(pixels, whole, orientation)


def upright(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """Rotate and flip stored pixels (h, w, ...) for display by their EXIF orientation; return a view."""
    if orientation in header.TURNED:
        pixels = pixels.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    return pixels


def _jpeg(data: bytes, stored: StoredSize, least_side: int) -> np.ndarray:
    """Decode a JPEG strictly; one with an odd header is rewritten without the oddity, and decoded strictly then."""
    try:
        return _decoded_jpeg(data, stored, least_side, strict=True)
    except (ValueError, KeyError) as error:  # KeyError: simplejpeg's of a header without a scan
        if ODD_SAMPLING in str(error):
            return _by_pillow(data, "jpeg")
        if not (isinstance(error, KeyError) or ODD_JPEG.search(str(error))):
            raise
    plain = plain_jpeg(data)
    try:
        return _decoded_jpeg(plain, stored, least_side, strict=True)
    except ValueError as error:
        if not ODD_JPEG.search(str(error)):
            raise
        return _decoded_jpeg(plain, stored, least_side, strict=False)


def _decoded_jpeg(data: bytes, stored: StoredSize, least_side: int, strict: bool) -> np.ndarray:
    if simplejpeg.decode_jpeg_header(data, 0, 0, 1.0, False)[2] in ("CMYK", "YCCK"):
        # Pillow knows Adobe's inverted values, but fills missing data with gray.
        simplejpeg.decode_jpeg(data, "CMYK", strict=strict)
        return _by_pillow(data, "jpeg")
    # The scale depends on the shorter side only, which a centre crop does not change.
    shorter = min(stored.height, stored.width)
    eighths = next((n for n in HALVINGS if least_side and shorter * n / 8 >= least_side), 8)
    rows, columns = (math.ceil(edge * eighths / 8) for edge in (stored.height, stored.width))
    return simplejpeg.decode_jpeg(data, "RGB", min_height=rows, min_width=columns, strict=strict)


def plain_jpeg(data: bytes) -> bytes:
    """Return a JPEG without metadata and with plain header values where libjpeg warns of odd ones.

    A missing end marker is added. Raises TruncatedHeader if the data ends before the pixels do.
    """
    places = list(header.segments(data))
    if any(end > len(data) for _, _, end in places):
        raise TruncatedHeader
    found = [(marker, data[start:end]) for marker, start, end in places]
    frame = next((each for each in found if each[0] in header.FRAMES), (0, bytes(8)))
    n_in_scan = next((body[2] for marker, body in found if marker == SCAN), 0)
    is_sequential, n_components = frame[0] in SEQUENTIAL, frame[1][7]
    if not n_in_scan or (found[-1][0] != END and not (is_sequential and n_in_scan == n_components)):
        raise TruncatedHeader
    out = [b"\xff\xd8"]
    for marker, body in found:
        if marker == JFIF and body[2:7] == b"JFIF\0":
            body = body[:7] + b"\1\1" + body[9:]
        elif marker == ADOBE and body[2:7] == b"Adobe":
            body = body[:13] + bytes([min(body[13], 2 if n_components == 4 else 1)]) if len(body) > 13 else body
        elif marker == SCAN and is_sequential:
            at = 3 + 2 * body[2]  # the spectral selection, which a sequential scan does not have
            body = body[:at] + b"\0\x3f\0" + body[at + 3 :]
        elif marker in range(JFIF, JFIF + 16) or marker in (COMMENT, END):
            continue
        out.append(body if marker == header.CODED else b"\xff" + bytes([marker]) + body)
    return b"".join(out) + b"\xff\xd9"


def _png(data: bytes) -> np.ndarray:
    """Decode a PNG; retry without metadata, which Pillow limits and whose checksums it checks."""
    try:
        return _by_pillow(data, "png")
    except HOSTILE as error:
        try:
            plain = b"".join(part for kind, part in header.chunks(data) if kind in PNG_PIXELS)
        except TruncatedHeader:
            raise error from None
        if len(plain) + len(header.PNG_MARK) == len(data):
            raise
        return _by_pillow(header.PNG_MARK + plain, "png")


def _by_pillow(data: bytes, format: str) -> np.ndarray:
    """Decode the first frame to uint8 (h, w, 3) with Pillow."""
    with opened(data, format) as image:
        tile = _tiles(image)
        shown = tile[0].extents if format == "gif" and tile else None
        pixels = rgb(image)
        if format == "png" and data[24:26] == b"\x10\x02" and "transparency" in image.info:
            pixels[_has_key(data, image.info["transparency"])] = 255
        if shown and "transparency" not in image.info:  # a viewer leaves the canvas around the first frame clear
            left, top, right, bottom = shown
            around = np.ones(pixels.shape[:2], bool)
            around[top:bottom, left:right] = False
            pixels[around] = 255
        return pixels


def rgb(image: Image.Image) -> np.ndarray:
    """Convert an opened Pillow image of any mode to uint8 (h, w, 3) on white, in strips that bound the memory."""
    _scale_key(image)
    image.load()
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    rows = max(1, STRIP // image.width)
    strips = [(top, min(top + rows, image.height)) for top in range(0, image.height, rows)]
    convert: Callable[[Image.Image], Image.Image] = methodcaller("convert", "RGB")
    if image.mode in WIDE:
        convert = _wide_levels(image, strips)
    elif image.has_transparency_data and not _is_clear_bmp(image):
        convert = _on_white
    elif image.mode == "LAB":
        convert = _from_lab
    for top, bottom in strips:
        pixels[top:bottom] = np.asarray(convert(_strip(image, top, bottom)))
    return pixels


def _strip(image: Image.Image, top: int, bottom: int) -> Image.Image:
    """Return rows ``top`` to ``bottom`` of an image; the image itself if these are all rows."""
    return image if (top, bottom) == (0, image.height) else image.crop((0, top, image.width, bottom))


def _on_white(image: Image.Image) -> Image.Image:
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA")).convert("RGB")


def _from_lab(image: Image.Image) -> Image.Image:
    """Convert CIE L*a*b* (D50), which Pillow's `convert` refuses, to sRGB."""
    from PIL import ImageCms  # for rare pictures only

    lab, srgb = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
    found = ImageCms.profileToProfile(image, lab, srgb, outputMode="RGB")  # type: ignore[arg-type]
    assert found is not None
    return found


def _wide_levels(image: Image.Image, strips: list[tuple[int, int]]) -> Callable[[Image.Image], Image.Image]:
    """Return the conversion of gray of over 8 bits: scaled, not clipped, from [0, top] to [0, 255].

    ``top`` is the largest value of the sample's bits up to 16, 65,535 for integers of 32 bits; for floats the largest
    value present, at least 1. NaN values become black.
    """
    bits = (getattr(image, "tag_v2", {}).get(BITS_PER_SAMPLE) or (16,))[0]
    most = 2.0 ** min(bits, 16) - 1
    if image.mode == "F":
        most = max(1.0, *(float(np.nanmax(np.asarray(_strip(image, *each)), initial=0.0)) for each in strips))
    inverted = is_inverted(image)
    key = image.info.get("transparency")

    def convert(strip: Image.Image) -> Image.Image:
        values = np.asarray(strip).astype(np.float64)
        shares = np.nan_to_num(np.clip(values / most, 0, 1))
        levels = ((1 - shares if inverted else shares) * 255).round().astype(np.uint8)
        if isinstance(key, int):
            levels[values == key] = 255
        return Image.fromarray(levels).convert("RGB")

    return convert


def is_inverted(image: Image.Image) -> bool:
    """Return whether a TIFF's gray values grow towards black (WhiteIsZero), which Pillow inverts up to 8 bits."""
    return getattr(image, "tag_v2", {}).get(PHOTOMETRIC) == WHITE_IS_ZERO


def _is_clear_bmp(image: Image.Image) -> bool:
    """Return whether a BMP's alpha is 0 everywhere: such files were written without a thought of alpha."""
    return image.format == "BMP" and image.mode == "RGBA" and image.getchannel("A").getextrema() == (0, 0)


def _scale_key(image: Image.Image) -> None:
    """Scale the transparent value of a PNG of 1 to 4 bits as Pillow scales its pixels, to 0 to 255."""
    key, tile = image.info.get("transparency"), _tiles(image)
    if image.format == "PNG" and image.mode in ("1", "L") and isinstance(key, int) and tile:
        most = {"1": 1, "L;2": 3, "L;4": 15}.get(tile[0].args)
        if most:
            image.info["transparency"] = 255 // most * (key & most)


def _tiles(image: Image.Image) -> list[Any]:
    """Return Pillow's list of what is still to decode: each with extents and args, the raw mode."""
    return getattr(image, "tile", [])


def _has_key(data: bytes, key: tuple[int, int, int]) -> np.ndarray:
    """Return where a PNG of 16 bits a channel has the transparent colour, (h, w) bool; Pillow keeps high bytes."""
    with opened(data, "png") as high, opened(data, "png") as low:
        low.tile = [each._replace(args="RGB;16L") for each in low.tile]  # type: ignore[attr-defined]
        del low.info["transparency"], high.info["transparency"]
        values = np.asarray(high).astype(np.int32) << 8 | np.asarray(low)
    return (values == key).all(-1)
