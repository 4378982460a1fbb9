"""Odd pictures give the pixels that a viewer shows, the same for every user of them. Chromium: test_odd_in_chromium."""

import numpy as np
import pytest
from PIL import Image

from pairmill.flows.api.pair import Pair
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.ops.image.pixels import pixels_of
from tests.worlds.odd_pictures import ALPHA, GREY, RGB, SHARES, corpus, levels
from tests.worlds.pictures import encode

CUT = ("jpeg/jfif-9-cut", "jpeg/sos-odd-cut", "jpeg/sos-odd-cut-with-end", "jpeg/cut-in-header", "jpeg/cut-half",
       "jpeg/cut-half-with-end", "jpeg/progressive-cut", "jpeg/progressive-cut-with-end", "png/cut-in-pixels",
       "png/cut-in-header", "gif/cut", "bmp/cut", "webp/cut", "tiff/cut", "tiff/cut-before-table", "avif/cut",
       "avif/cut-in-header")  # fmt: skip
REFUSED = dict.fromkeys(CUT, "truncated") | {
    "jpeg/start-twice": "undecodable",  # libjpeg and Chromium refuse it
    "jpeg/restart-lost": "undecodable",  # its pixels are damaged: libjpeg misses a restart
    "png/header-wrong-checksum": "undecodable",  # Chromium refuses it too
    "bmp/runs-4": "undecodable",  # leaves pixels undefined, which Pillow refuses
    "bmp/runs-8-skipping": "undecodable",  # likewise
    "tiff/float-64": "undecodable",  # Pillow and libvips have no such sample
    "tiff/float-64-white-is-0": "undecodable",
}
# Gray and colours that were written as samples, so that their right values are known. No browser shows a TIFF.
AS_RGB = ("rgb-16-little", "rgb-16-big", "rgb-8", "rgb-8-big", "alpha-8-unspecified", "cmyk", "ycbcr", "xmp", "pages",
          "planes-apart", "tag-odd", "compressed-tiff_lzw", "compressed-tiff_adobe_deflate", "compressed-packbits",
          "compressed-lzma", "compressed-zstd")  # fmt: skip
AS_GREY = {"float-32": 32, "float-32-white-is-0": 32, "float-32-to-255": 32, "grey-16-white-is-0-big-endian": 16,
           "grey-16-big-endian": 16, "grey-32": 16} | {
    f"grey-{bits}-{white}-is-0": bits for bits in (1, 2, 4, 8, 12, 16) for white in ("white", "black")
}  # fmt: skip
SHAPES = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
          5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
          8: Image.Transpose.ROTATE_90}  # fmt: skip


def test_what_a_viewer_shows_is_decoded_and_the_rest_says_why():
    found = {name: pixels_of(data) for name, data in corpus().items()}
    assert len(found) >= 200
    reasons = {name: each.reason for name, each in found.items() if isinstance(each, Fault)}
    assert reasons == REFUSED
    assert not [each.detail for each in found.values() if isinstance(each, Fault) and " at 0x" in each.detail]


def test_scores_captions_thumbnails_and_the_api_have_equal_pixels():
    for name, data in corpus().items():
        if name in REFUSED:
            continue
        found, header = pixels_of(data), inspect(data)
        assert isinstance(found, np.ndarray) and not isinstance(header, Fault)
        assert found.shape == (header.height, header.width, 3), name
        assert np.array_equal(np.asarray(Pair({}, data).image), found), name
        side = min(found.shape[:2])
        for mode in ("exact", "scaled"):
            decode = Decode(side, mode, max_aspect=99)
            assert np.array_equal(decode(data), found) and np.array_equal(decode.preview(data), found), name


def gap(name: str, expected: np.ndarray) -> int:
    found = pixels_of(corpus()[f"tiff/{name}"])
    assert isinstance(found, np.ndarray), found
    assert found.shape == expected.shape
    return int(np.abs(found.astype(int) - expected).max())


@pytest.mark.parametrize("name", AS_RGB)
def test_a_tiff_has_the_colours_that_were_written(name: str):
    assert gap(name, np.asarray(RGB)) <= 3


@pytest.mark.parametrize("name", AS_GREY)
def test_a_tiff_has_the_gray_that_was_written(name: str):
    bits = AS_GREY[name]
    shares = levels(GREY, bits)[..., 0] / (2**bits - 1)
    if "white-is-0" in name:
        shares = 1 - shares
    assert gap(name, np.repeat((shares * 255)[..., None], 3, 2).round()) <= 1


def test_a_tiff_lies_on_white_and_upright():
    on_white = (SHARES * ALPHA[..., None] + 1 - ALPHA[..., None]) * 255
    for name in ("alpha-8", "alpha-8-associated", "alpha-16"):
        assert gap(name, on_white.round()) <= 3, name
    for code, shape in SHAPES.items():
        assert gap(f"orientation-{code}", np.asarray(RGB.transpose(shape))) <= 1, code


def test_neutral_lab_is_gray():
    grey = Image.linear_gradient("L")
    lab = Image.merge("LAB", [grey, *[Image.new("L", grey.size, 128)] * 2])
    found = pixels_of(encode(lab, "TIFF"))
    assert isinstance(found, np.ndarray)
    assert np.ptp(found.astype(int), axis=-1).max() <= 2
    assert found[[0, 136, 255], 0, 0].tolist() == pytest.approx([0, 128, 255], abs=2)


def test_a_pair_that_cannot_be_decoded_says_why():
    with pytest.raises(Exception, match="image one cannot be decoded: truncated"):
        _ = Pair({"image_id": "one"}, corpus()["jpeg/cut-half"]).image
