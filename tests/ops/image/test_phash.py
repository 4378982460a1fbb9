import imagehash
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from pairmill.ops.image.decode import Decode
from pairmill.ops.image.phash import PerceptualHash
from pairmill.ops.whole.hamming import ODD_COLUMNS, coloured_edges, hamming_edges, mirrored_edges
from tests.examples import examples
from tests.reference.phash import slow_phash
from tests.worlds.golden import check_golden
from tests.worlds.pictures import encode, picture


def hashes(*images):
    return PerceptualHash()({"pixels": [np.asarray(image) for image in images]})["phash"]


def distance(a, b):
    return int(a ^ b).bit_count()


def small(image, format="PNG", **options):
    pixels = Decode(side=224)(encode(image, format, **options))
    assert isinstance(pixels, np.ndarray)
    return pixels


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (320, 240), (300, 900), (224, 224), (1000, 700)])
def test_it_stays_within_a_bit_of_imagehash_on_the_original(size):
    drift = []
    for seed in range(8):
        image = picture(seed, size)
        expected = int(str(imagehash.phash(image)), 16)
        drift.append(distance(hashes(small(image))[0], np.uint64(expected)))
    assert np.mean(drift) <= 1


@examples(50)
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 70), st.integers(1, 70), st.just(3))))
def test_the_slow_twin_agrees(pixels):
    expected, doubtful = slow_phash(pixels)
    assert (int(hashes(pixels)[0]) ^ expected) & ~doubtful == 0


def test_of_a_symmetric_picture_the_slow_twin_doubts_what_lies_at_the_median_and_no_more():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0, 0, 0] = 2
    expected, doubtful = slow_phash(pixels)
    assert 1 <= doubtful.bit_count() <= 4 and (int(hashes(pixels)[0]) ^ expected).bit_count() <= 2
    assert slow_phash(np.asarray(picture(1, (60, 45))))[1] == 0


def test_copies_are_near_and_other_pictures_far():
    for seed in range(6):
        image = picture(seed, (640, 480))
        half, brighter = image.resize((320, 240)), ImageEnhance.Brightness(image).enhance(1.1)
        original, *copies = hashes(
            small(image),
            small(half),
            small(brighter),
            small(image, "JPEG", quality=40),
            small(image, "WEBP", quality=50),
        )
        assert max(distance(original, copy) for copy in copies) <= 4
        assert min(distance(original, hashes(small(picture(other)))[0]) for other in range(20, 30)) > 12


def test_mirrored_and_turned_pictures_differ():
    for seed in range(6):
        image = picture(seed, (300, 300))
        original, *others = hashes(image, ImageOps.mirror(image), ImageOps.flip(image), image.rotate(90))
        assert min(distance(original, other) for other in others) > 12


def test_flat_pictures_are_alike_and_stable():
    flats = [np.full((224, 224 + wider, 3), level, np.uint8) for level in (1, 77, 255) for wider in (0, 75)]
    assert set(hashes(*flats).tolist()) == {1 << 63}


def test_a_hash_depends_on_its_picture_alone_not_on_its_batch():
    images = [picture(seed, size) for seed in range(3) for size in ((300, 224), (224, 224))]
    together = hashes(*images)
    assert together.dtype == np.uint64
    assert together.tolist() == [hashes(image)[0] for image in images]
    assert hashes().shape == (0,) and hashes().dtype == np.uint64


def test_read_only_and_unaligned_pixels_do():
    pixels = np.asarray(picture(0, (300, 224)))
    assert hashes(pixels)[0] == hashes(np.asfortranarray(pixels))[0] == hashes(pixels[:, ::-1][:, ::-1])[0]


def test_the_version_stands_for_the_output():
    found = hashes(*(picture(seed, (320, 240)) for seed in range(8)))
    check_golden("perceptual_hash", PerceptualHash().version, [f"{value:016x}" for value in found.tolist()])


def test_gray_and_colour_of_one_luma_look_alike():
    image = picture(2, (320, 240))
    assert distance(*hashes(image, image.convert("L").convert("RGB"))) <= 1


def mug(colour, side):
    """Return a mug of one colour on white."""
    image = Image.new("RGB", (4 * side, 3 * side), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((side, 0.6 * side, 2.4 * side, 2.4 * side), fill=colour)
    draw.arc((2 * side, side, 3 * side, 2 * side), -90, 90, fill=colour, width=side // 6)
    return image


def test_flat_shapes_of_other_colours_differ_and_their_copies_do_not():
    colours = ["red", (0, 130, 0), (60, 60, 200), "black", "orange", (200, 0, 200), (76, 76, 76)]  # four of one luma
    copies = [(90, "PNG", {}), (90, "JPEG", {"quality": 40}), (45, "JPEG", {}), (150, "WEBP", {"quality": 60})]
    files = [(mug(colour, side), kind, options) for colour in colours for side, kind, options in copies]
    batch = PerceptualHash()({"pixels": [small(image, kind, **options) for image, kind, options in files]})
    found = [bytes.fromhex(each) for each in batch["flat_colours"]]
    values = np.frombuffer(b"".join(found), np.uint8).reshape(len(files), -1)
    everything = np.ones(len(files), bool)
    i, j, _ = coloured_edges(batch["phash"], everything, 4, np.arange(len(files)), values)
    assert (i // 4 == j // 4).all(), "two colours"
    assert {*i.tolist(), *j.tolist()} == set(range(len(files))), "a copy without an edge"
    assert np.ptp(batch["phash"][:16:4].view(np.int64)) == 0  # their hashes do not tell


def test_photographs_have_no_flat_colours():
    batch = PerceptualHash()({"pixels": [np.asarray(picture(seed)) for seed in range(8)]})
    assert batch["flat_colours"] == [None] * 8
    assert PerceptualHash()({"luma": [np.zeros((30, 30), np.uint8)]})["flat_colours"] == [None]


def test_a_mirrored_or_recoloured_photograph_is_found_by_its_hash_alone():
    originals = [picture(seed, (480, 360)) for seed in range(12)]
    mirrored = [ImageOps.mirror(image) for image in originals]
    tinted = [ImageEnhance.Color(image).enhance(0.1) for image in originals]
    found = hashes(*map(small, [*originals, *mirrored, *tinted]))
    i, j, _ = mirrored_edges(found, np.ones(len(found), bool), 10)
    assert set(zip((i % 12).tolist(), (j % 12).tolist(), strict=True)) == {(n, n) for n in range(12)}
    assert all(distance(found[n], found[n + 24]) <= 8 for n in range(12))


@given(st.lists(st.integers(0, 255), max_size=12), st.integers(0, 2**12 - 1), st.integers(0, 3))
@examples(60)
def test_mirrored_and_plain_edges_connect_what_is_near_its_mirror_image(values, new, radius):
    found = np.array([value * 0x0101_0101_0101_0101 for value in values], np.uint64)
    is_new = np.array([bool(new >> n & 1) for n in range(len(values))], bool)
    everything = np.ones(len(values), bool)
    i, j, apart = mirrored_edges(found, is_new, radius)
    turned = found ^ np.uint64(ODD_COLUMNS)
    assert all(a < b and distance(found[a], turned[b]) == d and (is_new[a] or is_new[b])
               for a, b, d in zip(i, j, apart, strict=True))  # fmt: skip
    everything_of = [hamming_edges(found, everything, radius), mirrored_edges(found, everything, radius)]
    label = np.arange(len(values))
    for _ in values:
        for a, b, _ in everything_of:
            for one, other in zip(a, b, strict=True):
                label[[one, other]] = min(label[one], label[other])
    for a in range(len(values)):
        assert all(label[a] == label[b] for b in range(len(values))
                   if a != b and distance(found[a], turned[b]) <= radius)  # fmt: skip
