import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageFilter

from pairmill.ops.image.image_quality import ImageQuality, luma
from tests.reference.quality import brightness, colourfulness, image_entropy, sharpness
from tests.worlds.golden import check_golden
from tests.worlds.pictures import picture

NAMES = ("sharpness", "brightness", "colourfulness", "image_entropy")


def scores(*images):
    found = ImageQuality()({"pixels": [np.asarray(image) for image in images]})
    return [{name: float(found[name][row]) for name in NAMES} for row in range(len(images))]


def flat(*colour):
    return np.full((32, 48, 3), colour, np.uint8)


SHAPES = st.tuples(st.integers(1, 12), st.integers(1, 12), st.just(3))


@given(hnp.arrays(np.uint8, SHAPES))
def test_the_slow_twin_agrees(pixels):
    (found,) = scores(pixels)
    expected = {f.__name__: f(pixels) for f in (sharpness, brightness, colourfulness, image_entropy)}
    assert found == pytest.approx(expected, abs=1e-4)


def test_flat_pictures_have_no_edges_no_colour_and_no_entropy():
    black, white, gray, red = scores(flat(0, 0, 0), flat(255, 255, 255), flat(128, 128, 128), flat(255, 0, 0))
    assert black == {"sharpness": 0, "brightness": 0, "colourfulness": 0, "image_entropy": 0}
    assert white == {"sharpness": 0, "brightness": 1, "colourfulness": 0, "image_entropy": 0}
    assert gray["brightness"] == pytest.approx(128 / 255, abs=1e-4)
    # Opponent colours 255 and 127.5, no spread: 0.3 x their length.
    assert red["colourfulness"] == pytest.approx(0.3 * np.hypot(255, 127.5), abs=1e-4)
    assert str(black["image_entropy"]) == "0.0"


def test_blur_lowers_sharpness_and_gray_lowers_colourfulness_and_nothing_else_much():
    sharp = picture(1)
    blurred, gray = sharp.filter(ImageFilter.GaussianBlur(2)), sharp.convert("L").convert("RGB")
    a, b, c = scores(sharp, blurred, gray)
    assert b["sharpness"] < a["sharpness"] / 4
    assert b["brightness"] == pytest.approx(a["brightness"], abs=0.01)
    assert c["colourfulness"] == 0 < a["colourfulness"]
    assert c["sharpness"] == pytest.approx(a["sharpness"], rel=0.02)


def test_noise_has_nearly_eight_bits_of_entropy_and_two_levels_have_one():
    noise = np.random.default_rng(0).integers(0, 256, (256, 256, 1), np.uint8).repeat(3, axis=2)
    halves = np.concatenate([flat(0, 0, 0), flat(9, 9, 9)])
    a, b = scores(noise, halves)
    assert 7.9 < a["image_entropy"] <= 8
    assert b["image_entropy"] == 1


@given(hnp.arrays(np.uint8, SHAPES))
def test_luma_is_pillows(pixels):
    assert (luma(pixels) == np.asarray(Image.fromarray(pixels).convert("L"))).all()


def test_a_batch_keeps_its_columns_and_may_be_empty():
    batch = {"pixels": [flat(1, 2, 3), np.asarray(picture(0))], "sha256": ["a", "b"]}
    found = ImageQuality()(batch)
    assert found["sha256"] == ["a", "b"] and set(found) == {"pixels", "sha256", *NAMES}
    assert all(found[name].dtype == np.float64 and found[name].shape == (2,) for name in NAMES)
    assert ImageQuality()({"pixels": []})["sharpness"].shape == (0,)
    assert all(found[name][0] == ImageQuality()({"pixels": [flat(1, 2, 3)]})[name][0] for name in NAMES)


def test_the_version_stands_for_the_output():
    found = ImageQuality()({"pixels": [np.asarray(picture(seed, (96, 64))) for seed in range(4)]})
    check_golden("image_quality", ImageQuality().version, {name: found[name] for name in NAMES})
