import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text import minhash
from pairmill.ops.text.minhash import BANDS, SentenceSignature, jaccard
from tests.reference.near_strings import trigrams
from tests.worlds.golden import check_golden

NAMES = [f"band{number}" for number in range(1, BANDS + 1)]
TEXTS = [
    "",
    "a",
    "ab",
    "A cat sat on the mat.",
    "a cat  sat on the MAT.",
    "A cat sat on the mats.",
    "Nothing alike here.",
]


def signed(texts: list[str]) -> np.ndarray:
    """(n, 17): bands and sketch."""
    batch = SentenceSignature()({"text": texts})
    return np.stack([batch[name] for name in (*NAMES, "sketch")], axis=1)


def test_signatures_of_a_version():
    values = signed(TEXTS[2:4])[:, [0, 15, 16]]
    assert values.dtype == np.uint64
    check_golden("sentence_signature", SentenceSignature().version, values)


def test_likeness_of_a_version():
    values = jaccard(TEXTS[3:6], [TEXTS[5], TEXTS[3], TEXTS[6]])
    check_golden("jaccard", minhash.JACCARD_VERSION, values)


def test_sentences_that_are_one_content_have_one_signature():
    found = signed(TEXTS)
    assert (found[3] == found[4]).all()
    assert len({bytes(row) for row in found}) == len(TEXTS) - 1


@given(st.lists(st.text(max_size=30), max_size=12), st.sampled_from((1, 7, 1 << 16)))
def test_a_signature_does_not_depend_on_the_sentences_beside_it(texts: list[str], block: int):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(minhash, "BLOCK", block)
        together = signed([*texts, "the last"])
    alone = np.concatenate([signed([text]) for text in [*texts, "the last"]])
    assert (together == alone).all()


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_likeness_is_the_share_of_common_trigrams(left: str, right: str):
    one, other = trigrams(left), trigrams(right)
    assert jaccard([left], [right]) == [len(one & other) / len(one | other)]


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95])
def test_minima_agree_as_often_as_the_sentences_are_alike(share: float):
    """Of 128 minima times 40 pairs the share of equal bytes is the Jaccard similarity, and a bit in two by chance."""
    random.seed(3)
    letters = [chr(0x4E00 + n) for n in range(20_000)]
    pairs, likeness = [], []
    for _ in range(40):
        body = random.sample(letters, 300)
        other = body[: int(300 * 2 * share / (1 + share))]
        pairs += ["".join(body), "".join([*other, *random.sample(letters, 300 - len(other))])]
        likeness.append(jaccard(pairs[-2:-1], pairs[-1:])[0])
    found = signed(pairs)
    minima = np.ascontiguousarray(found[:, :BANDS]).view(np.uint8)
    expected = np.mean(likeness)
    assert (minima[0::2] == minima[1::2]).mean() == pytest.approx(expected + (1 - expected) / 256, abs=0.03)
    differing = np.bitwise_count(found[0::2, BANDS] ^ found[1::2, BANDS]) / 64
    assert differing.mean() == pytest.approx((1 - expected) / 2, abs=0.03)
