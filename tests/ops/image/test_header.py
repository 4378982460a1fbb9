import struct
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.image import header
from pairmill.ops.image.header import Header, inspect
from tests.examples import examples
from tests.worlds.headers import ENCODINGS, SEEDS, png_of
from tests.worlds.pictures import encode, picture, turned_exif


@pytest.mark.parametrize(("format", "options"), ENCODINGS)
@pytest.mark.parametrize(("width", "height"), [(70, 33), (1, 1), (33, 70)])
def test_size_and_format_are_read_from_the_header_of_every_format(format, options, width, height):
    data = encode(picture(size=(width, height)), format.upper(), **options)
    assert inspect(data) == Header(width, height, format)


@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "tiff", "avif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_sides_are_swapped_for_pictures_that_lie_on_their_side(format, orientation):
    data = encode(picture(size=(70, 33)), format.upper(), exif=turned_exif(orientation))
    assert inspect(data) == Header(70 if orientation < 5 else 33, 33 if orientation < 5 else 70, format)


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGBA", "LA", "P", "1", "I;16"])
def test_the_mode_of_the_pixels_does_not_matter(mode):
    image = picture(size=(40, 20)).convert("L" if mode == "I;16" else mode)
    image = image.convert("I;16") if mode == "I;16" else image
    for format in {"CMYK": ["jpeg", "tiff"], "L": ["jpeg", "png", "bmp"]}.get(mode, ["png", "tiff"]):
        assert inspect(encode(image, format.upper())) == Header(40, 20, format)


def test_an_animation_has_the_size_of_its_canvas():
    frames = [picture(seed, (40, 30)) for seed in range(3)]
    for format in ("gif", "webp", "png"):
        data = encode(frames[0], format.upper(), save_all=True, append_images=frames[1:])
        assert inspect(data) == Header(40, 30, format, animated=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"<html><body>404 Not Found", "not_an_image"),
        (b"<?xml version='1.0'?><svg xmlns='http://www.w3.org/2000/svg'/>", "not_an_image"),
        (b"%PDF-1.7", "not_an_image"),
        (b"BM was here, says this text", "not_an_image"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "not_an_image"),
        (b"\0\0\1\0\1\0\x10\x10", "not_an_image"),
        (b"RIFF\0\0\0\0WAVEfmt ", "not_an_image"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0", "truncated"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "truncated"),
        (b"GIF89a\1", "truncated"),
        (b"RIFF\x99\0\0\0WEBPVP8 ", "truncated"),
        (b"\xff\xd8\xff\xda\0\x08", "undecodable"),
        (b"RIFF\x99\0\0\0WEBPJUNK" + bytes(40), "undecodable"),
        (b"GIF89a\0\0\5\0" + bytes(10), "undecodable"),
        (png_of(0, 7), "undecodable"),
        (png_of(60_000, 60_000), "bomb"),
        (png_of(2**31 - 1, 2**31 - 1), "bomb"),
    ],
)
def test_what_is_no_usable_image_says_which_way(data, reason):
    found = inspect(data)
    assert isinstance(found, Fault)
    assert (found.reason, found.item) == (reason, "")
    assert found.detail


def test_the_limits_are_the_callers():
    data = encode(picture(size=(100, 50)))
    assert isinstance(inspect(data, max_pixels=5000), Header)
    too_many, too_long = inspect(data, max_pixels=4999), inspect(data, max_bytes=len(data) - 1)
    assert isinstance(too_many, Fault) and too_many.reason == "bomb" and "100 x 50" in too_many.detail
    assert isinstance(too_long, Fault) and too_long.reason == "too_large"


@pytest.mark.parametrize(("format", "options"), ENCODINGS)
def test_a_picture_cut_anywhere_is_truncated_or_has_its_true_header(format, options):
    data = encode(picture(size=(70, 33)), format.upper(), **options)
    for length in [*range(3, 100), *range(100, len(data), 37)]:
        found = inspect(data[:length])
        if isinstance(found, Header):
            assert found == Header(70, 33, format)
        elif len(data[:length]) >= 32:
            assert found.reason == "truncated"


def test_a_jpegs_thumbnail_and_padding_do_not_pass_for_its_own_header():
    exif = turned_exif(6).tobytes() + encode(picture(size=(16, 12)))
    data = encode(picture(size=(70, 33)), exif=exif)
    assert inspect(data[:2] + b"\xff\xff\xff" + data[2:]) == Header(33, 70, "jpeg")


@examples(400)
@given(st.one_of(st.binary(max_size=64), st.sampled_from(SEEDS)), st.data())
@example(b"II*\0\xff\xff\xff\xff", None)
@example(b"II+\0" + struct.pack("<HHQ", 8, 0, 2**63) + bytes(64), None)
def test_mutated_and_random_bytes_never_raise(data, draws):
    mutated = bytearray(data)
    for _ in range(draws.draw(st.integers(0, 8)) if draws else 0):
        if mutated:
            mutated[draws.draw(st.integers(0, min(len(mutated) - 1, 200)))] = draws.draw(st.integers(0, 255))
    found = inspect(bytes(mutated))
    if isinstance(found, Header):
        assert 0 < found.width * found.height <= 100_000_000


@pytest.mark.parametrize("format", ["jpeg", "png", "gif", "webp", "bmp", "tiff", "avif"])
def test_pillow_reads_the_same_size(format, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(encode(picture(size=(123, 45)), format.upper()))
    with Image.open(path) as image:
        assert inspect(path.read_bytes()) == Header(*image.size, format)


def test_a_png_of_countless_chunks_or_of_none_is_not_walked_to_its_end(monkeypatch: pytest.MonkeyPatch):
    looked = []
    unpack = struct.unpack_from
    monkeypatch.setattr(header.struct, "unpack_from", lambda *given: (looked.append(given[0]), unpack(*given))[1])
    monkeypatch.setattr(header, "MAX_BLOCKS", 1_000)
    small = encode(picture(size=(8, 8)), "PNG")
    empty = b"\0\0\0\0tEXt" + zlib.crc32(b"tEXt").to_bytes(4, "big")
    assert inspect(small[:8] + bytes(12 * 9_000)) == Fault("", "undecodable", "png: no IHDR chunk first")
    assert inspect(small[:33] + empty * 9_000 + small[33:]) == Header(8, 8, "png")
    assert len(looked) < 2_100  # of each of two looks
