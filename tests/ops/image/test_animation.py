import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pairmill.ops.image.header import Header, inspect, is_animated
from tests.examples import examples
from tests.worlds.pictures import encode, picture

KINDS = [
    ("gif", {}),
    ("gif", {"loop": 0, "disposal": 2, "comment": b"x" * 700}),
    ("gif", {"interlace": False}),
    ("png", {}),
    ("png", {"default_image": True}),
    ("webp", {}),
    ("webp", {"lossless": True, "loop": 3}),
    ("avif", {"speed": 10}),
]


def file_of(format, n, options):
    first, *rest = [picture(seed, (40, 30)) for seed in range(n)]
    return encode(first, format.upper(), save_all=True, append_images=rest, **options)


@pytest.mark.parametrize(("format", "options"), KINDS)
@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_file_is_animated_when_pillow_finds_a_second_frame(format, options, n):
    if n == 1:
        options = {name: value for name, value in options.items() if name != "default_image"}
    data = file_of(format, n, options)
    with Image.open(io.BytesIO(data)) as image:
        frames = getattr(image, "n_frames", 1)
    assert frames == n
    assert inspect(data) == Header(40, 30, format, animated=n > 1)


@pytest.mark.parametrize(("format", "options"), KINDS)
def test_a_picture_alone_is_never_animated(format, options):
    options = {name: value for name, value in options.items() if name not in ("loop", "default_image")}
    assert not is_animated(encode(picture(size=(40, 30)), format.upper(), **options), format)


def test_pages_of_a_tiff_and_the_preview_of_a_jpeg_are_no_animation():
    pages = encode(picture(0), "TIFF", save_all=True, append_images=[picture(1)])
    views = encode(picture(0), "MPO", save_all=True, append_images=[picture(1)])
    assert inspect(pages) == Header(320, 240, "tiff", animated=False)
    assert inspect(views) == Header(320, 240, "jpeg", animated=False)


def test_a_gif_padded_between_its_frames_is_walked_on():
    data = file_of("gif", 2, {})
    second = data.rindex(b"!\xf9\x04")
    assert is_animated(data[:second] + b"\0\0" + data[second:], "gif")


@pytest.mark.parametrize("hostile", [b"\0" * 2**22, b"!\xff" + b"\1\1" * 2**21, b"!\xff\0" * 2**20])
def test_a_gif_without_an_end_is_given_up(hostile):
    assert not is_animated(b"GIF89a" + bytes(7) + hostile, "gif")


@examples(200)
@given(st.sampled_from(KINDS), st.floats(0, 1), st.binary(max_size=8))
def test_a_cut_or_overwritten_file_raises_nothing(kind, share, junk):
    data = SEEDS[kind[0]]
    at = int(share * len(data))
    for bent in (data[:at], data[:at] + junk + data[at + len(junk) :]):
        assert is_animated(bent, kind[0]) in (True, False)


SEEDS = {format: file_of(format, 2, {}) for format in ("gif", "png", "webp", "avif")}
