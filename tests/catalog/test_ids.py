import hashlib

from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.terms.ids import content_id, text_id


def test_a_content_id_is_the_first_128_bits_of_the_sha256():
    assert content_id(b"abc") == hashlib.sha256(b"abc").hexdigest()[:32] == "ba7816bf8f01cfea414140de5dae2223"


def test_one_text_has_the_id_of_its_utf8_bytes():
    assert text_id("Größe") == content_id("Größe".encode())


@given(st.lists(st.text(st.characters(exclude_characters="\x1f")), min_size=1), st.data())
def test_parts_split_elsewhere_have_another_id(parts, data):
    other = data.draw(st.lists(st.text(st.characters(exclude_characters="\x1f")), min_size=1))
    assert (text_id(*parts) == text_id(*other)) == (parts == other)


def test_a_lone_surrogate_has_an_id_too():
    assert len(text_id("\ud800")) == 32
