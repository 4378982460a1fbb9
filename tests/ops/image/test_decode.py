import io
import re
import struct

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from pairmill.ops.fault import Fault
from pairmill.ops.image import header
from pairmill.ops.image import pixels as decoding
from pairmill.ops.image.decode import Decode, target
from pairmill.ops.image.header import inspect
from tests.examples import examples
from tests.reference.decode import decode_slowly
from tests.worlds.arithmetic import ARITHMETIC, ARITHMETIC_PROGRESSIVE
from tests.worlds.golden import check_golden
from tests.worlds.headers import ENCODINGS, SEEDS, png_of
from tests.worlds.pictures import encode, picture, turned_exif

torch.set_num_threads(1)
DECODE = Decode(side=64)


def pixels(data, decode=DECODE):
    found = decode(data)
    assert isinstance(found, np.ndarray), found
    return found


def reason(data, decode=DECODE):
    found = decode(data)
    return found.reason if isinstance(found, Fault) else "decoded"


@pytest.mark.parametrize(("format", "options"), ENCODINGS)
@pytest.mark.parametrize("size", [(320, 240), (150, 401), (50, 40), (64, 64)])
def test_every_format_gives_what_pillow_gives_with_the_shorter_side_as_asked(format, options, size):
    data = encode(picture(size=size), format.upper(), **options)
    found = pixels(data)
    expected = decode_slowly(data, 64)
    assert (found.dtype, found.shape, min(found.shape[:2])) == (np.uint8, expected.shape, 64)
    assert found.flags.c_contiguous
    # Torch and Pillow round their weights otherwise, and cut overshoot at edges between the two directions.
    difference = np.abs(found.astype(int) - expected)
    assert difference.max() <= 8
    assert difference.mean() < 0.1


@pytest.mark.parametrize("format", ["jpeg", "png", "webp", "tiff", "avif"])
@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["exact", "scaled"])
def test_a_picture_stored_on_its_side_is_turned_upright(format, orientation, mode):
    data = encode(picture(size=(400, 200)), format.upper(), exif=turned_exif(orientation))
    found = pixels(data, Decode(side=64, mode=mode))
    with Image.open(io.BytesIO(data)) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    assert found.shape[:2] == target(upright.height, upright.width, 64)
    expected = np.asarray(upright.resize(found.shape[1::-1], Image.Resampling.BICUBIC))
    assert np.abs(found.astype(int) - expected).mean() < 3
    header = inspect(data)
    assert not isinstance(header, Fault)
    assert (header.width, header.height) == upright.size


def test_scaled_decoding_is_close_to_exact_and_of_the_same_shape():
    for seed, size in enumerate([(1280, 960), (1000, 333), (65, 64), (700, 5000)]):
        data = encode(picture(seed, size), quality=90)
        exact, scaled = pixels(data), pixels(data, Decode(side=64, mode="scaled"))
        assert exact.shape == scaled.shape
        assert np.abs(exact.astype(int) - scaled).mean() < 1


def test_scaled_decoding_halves_a_picture_only_where_the_target_is_left():
    for width, halved in [(128, True), (126, False), (64, False)]:
        data = encode(picture(size=(2 * width, width)), quality=90)
        exact, scaled = pixels(data), pixels(data, Decode(side=64, mode="scaled"))
        assert np.array_equal(exact, scaled) is not halved, width


def test_transparency_lies_on_white_in_every_mode():
    clear = Image.new("RGBA", (20, 20), (255, 0, 0, 0))
    half = Image.new("RGBA", (20, 20), (0, 0, 0, 128))
    palette = Image.new("RGBA", (20, 20), (9, 8, 7, 0)).quantize()
    for image, level, options in [
        (clear, 255, {}),
        (half, 127, {}),
        (half.convert("LA"), 127, {}),
        (palette, 255, {}),
        (Image.new("L", (20, 20), 9), 255, {"transparency": 9}),
        (Image.new("RGB", (20, 20), (9, 9, 9)), 255, {"transparency": (9, 9, 9)}),
    ]:
        assert np.abs(pixels(encode(image, "PNG", **options)).astype(int) - level).max() <= 1
    assert np.abs(pixels(encode(half, "WEBP", lossless=True)).astype(int) - 127).max() <= 1


def test_gray_16_bit_float_cmyk_and_bilevel_pictures_keep_their_brightness():
    ramp = np.tile(np.linspace(0, 1, 64), (64, 1))
    wide = Image.fromarray((ramp * 65535).astype(np.uint16))
    cases = [
        (encode(wide, "PNG"), ramp),
        (encode(wide, "TIFF"), ramp),
        (encode(Image.fromarray(ramp.astype(np.float32)), "TIFF"), ramp),
        (encode(Image.fromarray((ramp * 255).astype(np.uint8)), "PNG"), ramp),
        (encode(Image.fromarray((ramp * 255).astype(np.uint8)).convert("RGB").convert("CMYK"), "JPEG"), ramp),
        (encode(Image.fromarray((ramp * 255).astype(np.uint8)).convert("RGB").convert("CMYK"), "TIFF"), ramp),
        (encode(Image.fromarray(ramp > 0.5), "PNG"), ramp > 0.5),
    ]
    for data, expected in cases:
        found = pixels(data)
        assert found.shape == (64, 64, 3)
        assert np.abs(found / 255 - expected[..., None]).mean() < 0.02


def test_values_that_are_no_numbers_are_black():
    values = np.full((64, 64), np.nan, np.float32)
    values[:, 32:] = 1.0
    assert pixels(encode(Image.fromarray(values), "TIFF")).mean() == pytest.approx(127.5)


def test_an_animation_gives_its_first_frame():
    frames = [Image.new("RGB", (64, 64), colour) for colour in ("red", "blue")]
    for format in ("GIF", "PNG", "WEBP", "TIFF", "AVIF"):
        found = pixels(encode(frames[0], format, save_all=True, append_images=frames[1:]))
        assert np.abs(found.astype(int) - (255, 0, 0)).max() <= 3


@pytest.mark.parametrize("mode", ["exact", "scaled"])
def test_a_very_long_picture_is_cut_to_its_centre_first(mode):
    strip = np.zeros((20, 2000, 3), np.uint8)
    strip[:, 920:1080] = 255
    data = encode(Image.fromarray(strip), quality=95)
    found = pixels(data, Decode(side=16, mode=mode))
    assert found.shape == (16, 128, 3)
    assert found[:, 4:-4].mean() > 250
    assert pixels(encode(picture(size=(1, 3000)), "PNG"), Decode(side=16)).shape == (128, 16, 3)


@pytest.mark.parametrize(("format", "options"), [*ENCODINGS, ("jpeg", {"optimize": True, "restart_marker_blocks": 4})])
@pytest.mark.parametrize("mode", ["exact", "scaled"])
def test_a_truncated_picture_is_a_fault_and_never_gray_pixels(format, options, mode):
    data = encode(picture(size=(320, 240)), format.upper(), **options)
    decode = Decode(side=64, mode=mode)
    for share in (0.3, 0.5, 0.7, 0.9, 0.98):
        assert reason(data[: int(len(data) * share)], decode) == "truncated", share


@pytest.mark.parametrize("progressive", [False, True])
def test_a_truncated_jpeg_that_pretends_to_be_whole_is_found_out(progressive):
    data = encode(picture(size=(320, 240)), progressive=progressive)
    for share in (0.4, 0.6, 0.8):
        assert reason(data[: int(len(data) * share)] + b"\xff\xd9") == "truncated"


def test_a_cmyk_jpeg_cut_short_is_found_out_too():
    data = encode(picture(size=(320, 240)).convert("CMYK"))
    assert reason(data[: len(data) // 2]) == reason(data[: len(data) // 2] + b"\xff\xd9") == "truncated"


def test_a_ycck_jpeg_as_photoshop_writes_it_gives_what_pillow_gives():
    data = bytearray(encode(picture(size=(320, 240)).convert("CMYK"), quality=95))
    data[data.index(b"Adobe") + 11] = 2  # the colour transform of the Adobe marker: YCCK
    found = pixels(bytes(data))
    difference = np.abs(found.astype(int) - decode_slowly(bytes(data), 64))
    assert difference.mean() < 0.2


def test_harmless_oddities_of_jpegs_do_no_harm():
    data = encode(picture(size=(320, 240)))
    whole = pixels(data)
    for odd in (data + b"trailing bytes", data[:-2] + bytes(7) + data[-2:], data[:2] + b"\xff\xff" + data[2:]):
        assert (pixels(odd) == whole).all()


@pytest.mark.parametrize("data", [ARITHMETIC, ARITHMETIC_PROGRESSIVE])
@pytest.mark.parametrize("mode", ["exact", "scaled"])
def test_arithmetic_coding_gives_the_picture_and_a_cut_in_it_is_found_out(data, mode):
    plain = encode(picture(size=(48, 32)), quality=60, subsampling=2)
    assert inspect(data) == (48, 32, "jpeg", False)
    found, decode = pixels(data, Decode(side=32, mode=mode)), Decode(side=32, mode=mode)
    assert np.abs(found.astype(int) - pixels(plain, decode)).mean() < 1
    # The coder itself reads zeros behind the end: only the missing end mark tells.
    assert reason(data[: len(data) * 2 // 3], decode) == "truncated"


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("profile", [b"\0", b"no profile at all", bytes(range(256)) * 16])
def test_a_broken_colour_profile_changes_nothing(format, profile):
    plain = encode(picture(size=(90, 64)), format)
    assert (pixels(encode(picture(size=(90, 64)), format, icc_profile=profile)) == pixels(plain)).all()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
@pytest.mark.parametrize(
    "exif",
    [
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + bytes(60),
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x63\0\0\0",  # orientation 99
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\xff\xff\xff\xff\xff\xff\xff\x7f",  # a text beyond the end
    ],
)
def test_broken_exif_leaves_the_picture_upright_and_readable(format, exif):
    data = encode(picture(size=(90, 64)), format, exif=exif)
    assert inspect(data) == (90, 64, format.lower(), False)
    assert (pixels(data) == pixels(encode(picture(size=(90, 64)), format))).all()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "empty"),
        (b"<html>", "not_an_image"),
        (b"\n\n<!DOCTYPE html><title>404</title>", "not_an_image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>", "not_an_image"),
        (png_of(60_000, 60_000), "bomb"),
        (png_of(50, 50), "truncated"),
        (b"GIF89a\5\0\5\0\0\0\0junk", "undecodable"),
        (
            b"BM" + struct.pack("<IHHI", 0, 0, 0, 54) + struct.pack("<IiiHHI", 40, 5, 5, 1, 77, 9) + bytes(20),
            "undecodable",
        ),
    ],
)
def test_what_cannot_be_decoded_says_which_way(data, expected):
    assert reason(data) == expected


def test_limits_hold_before_any_pixel_is_decoded():
    data = encode(picture(size=(100, 50)))
    assert reason(data, Decode(max_pixels=4999)) == "bomb"
    assert reason(data, Decode(max_bytes=100)) == "too_large"


@pytest.mark.parametrize("format", ["jpeg", "png", "gif", "bmp", "webp", "tiff", "avif"])
def test_a_limit_above_pillows_own_counts(format: str, monkeypatch: pytest.MonkeyPatch):
    data = encode(picture(size=(100, 50)).convert("CMYK" if format == "jpeg" else "RGB"), format.upper())
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2000)
    assert reason(data, Decode(max_pixels=5000)) == "decoded"
    assert reason(data, Decode(max_pixels=4999)) == "bomb"
    assert Image.MAX_IMAGE_PIXELS == 2000


@pytest.mark.parametrize(
    ("format", "options", "at"),
    [
        ("jpeg", {"restart_marker_blocks": 1}, -11),
        ("gif", {}, 20),
        ("gif", {}, 790),
        ("tiff", {"compression": "tiff_lzw"}, -20),
        ("tiff", {"compression": "tiff_lzw"}, -1),
        ("avif", {}, 32),
    ],
)
def test_a_picture_cut_inside_its_structure_is_truncated(format: str, options: dict[str, object], at: int):
    assert reason(encode(picture(size=(90, 64)), format.upper(), **options)[:at]) == "truncated"


@examples(300)
@given(st.one_of(st.binary(max_size=64), st.sampled_from(SEEDS)), st.sampled_from(["exact", "scaled"]), st.data())
def test_mutated_and_random_bytes_never_raise(data, mode, draws):
    mutated = bytearray(data)
    for _ in range(draws.draw(st.integers(0, 6))):
        if mutated:
            mutated[draws.draw(st.integers(0, len(mutated) - 1))] = draws.draw(st.integers(0, 255))
    found = Decode(side=16, mode=mode, max_pixels=1_000_000)(bytes(mutated))
    if isinstance(found, np.ndarray):
        assert found.dtype == np.uint8
        assert found.shape[2] == 3
        assert 16 == min(found.shape[:2]) <= max(found.shape[:2]) <= 128


@pytest.mark.parametrize("mode", ["exact", "scaled"])
def test_the_version_stands_for_the_output(mode):
    decode = Decode(side=32, mode=mode)
    values = {}
    for format, options in [("jpeg", {"quality": 85}), ("png", {}), ("webp", {"lossless": True})]:
        found = pixels(encode(picture(3, (150, 100)), format.upper(), **options), decode)
        # Codecs of another build may round otherwise: coarse means, which no true change leaves alone.
        values[format] = [found.shape[1], *(found.reshape(4, 8, -1, 3).mean(axis=(1, 2)) / 255).ravel().round(3)]
    check_golden(f"decode_{mode}", decode.version, values)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "P", "LA", "1", "I;16", "F"])
def test_a_picture_converted_strip_by_strip_is_what_it_is_as_a_whole(mode: str, monkeypatch: pytest.MonkeyPatch):
    values = np.random.default_rng(1).integers(0, 256, (70, 50, 4), np.uint8)
    if mode in ("I;16", "F"):
        picture = Image.fromarray(values[..., 0].astype(np.uint16 if mode == "I;16" else np.float32) * 200)
    else:
        picture = Image.fromarray(values, "RGBA").convert(mode)
    out = io.BytesIO()
    picture.save(out, "TIFF" if mode == "F" else "PNG")
    whole = Decode(side=32)(out.getvalue())
    monkeypatch.setattr(decoding, "STRIP", 350)
    assert np.array_equal(Decode(side=32)(out.getvalue()), whole)


@pytest.mark.parametrize("format", ["WEBP", "TIFF", "JPEG"])
def test_a_format_whose_decoder_holds_more_has_fewer_pixels(format: str, monkeypatch: pytest.MonkeyPatch):
    out = io.BytesIO()
    Image.new("RGB", (100, 100)).save(out, format, **({"progressive": True} if format == "JPEG" else {}))
    monkeypatch.setattr(header, "MOST_DECODED", 90_000)
    found = inspect(out.getvalue(), max_pixels=10_000)
    assert isinstance(found, Fault) and found.reason == "bomb"
    plain = io.BytesIO()
    Image.new("RGB", (100, 100)).save(plain, "PNG")
    assert not isinstance(inspect(plain.getvalue(), max_pixels=10_000), Fault)


@pytest.mark.parametrize("format", ["jpeg", "png", "gif", "bmp", "webp", "tiff", "avif"])
def test_a_damaged_picture_is_told_by_its_format_and_a_cause_in_words_equal_in_every_run(format: str):
    rng = np.random.default_rng(5)
    whole, noise = io.BytesIO(), rng.integers(0, 255, (40, 40, 3)).astype(np.uint8)
    Image.fromarray(noise).save(whole, format)
    for n in range(60):
        data = bytearray(whole.getvalue()[: rng.integers(12, len(whole.getvalue())) if n % 2 else None])
        for place in rng.integers(12, len(data) + 1, n // 2 % 8):
            data[place - 1] = rng.integers(0, 256)
        found = DECODE(bytes(data))
        if isinstance(found, Fault) and found.reason in ("truncated", "undecodable"):
            again = DECODE(bytes(data))
            assert isinstance(again, Fault) and again.detail == found.detail
            assert format in found.detail and re.search(r"[a-z]{2,} [a-z]{2,}", found.detail.lower()), found.detail
            assert not re.search(r"0x[0-9a-f]{5}|\(\)|the data", found.detail), found.detail
