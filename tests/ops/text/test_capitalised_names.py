"""Names are runs of capitalised words within sentences."""

import pytest

from pairmill.ops.text.words import names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The boats of Lake Como and of Clara.", {"Lake Como", "Clara"}),
        ("It is late. Boats rest: “Nobody sails.” So says O'Brien", {"O'Brien"}),
        ("nothing here", set()),
        ("", set()),
    ],
)
def test_names_are_capitalised_words_that_begin_no_sentence(text: str, found: set[str]):
    assert names(text) == found
