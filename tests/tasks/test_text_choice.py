"""A sample's text is drawn by weight among the texts that a pair has, and always the same one."""

from collections import Counter

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export.export_forms import text_choice

ROW = {"text1": "one", "text2": "two", "text3": None, "syn_text": "made", "caption": None, "alt_text": ""}


def test_texts_are_drawn_by_their_weights_among_those_that_a_pair_has():
    choice = text_choice("random(text1..text3, syn_text * 2)")
    assert choice.weights == (("text1", 1.0), ("text2", 1.0), ("text3", 1.0), ("syn_text", 2.0))
    drawn = Counter(choice.text_of({**ROW, "image_id": str(n)}) for n in range(4000))
    assert drawn.keys() == {"one", "two", "made"}
    assert abs(drawn["made"] - 2000) < 160 and abs(drawn["one"] - 1000) < 140  # five standard deviations
    assert choice.text_of({**ROW, "image_id": "7"}) == choice.text_of({"image_id": "7", **ROW})
    assert text_choice("random(caption, alt_text)").text_of({**ROW, "image_id": "7"}) == ""
    assert text_choice("text2").text_of({**ROW, "image_id": "7"}) == "two"


@pytest.mark.parametrize(
    ("spec", "what"),
    [
        ("title", "there is no text 'title'"),
        ("random(text1, text9)", "there is no text 'text9'"),
        ("random(text1 text2)", "is no column with a weight"),
        ("random(text1..text3, text2)", "names a column twice"),
        ("random(text3..text1)", "names a column twice or none"),
        ("random(text1 * 0)", "no weight is above 0"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused_with_an_example(spec: str, what: str):
    with pytest.raises(PairmillError, match=what) as told:
        text_choice(spec)
    assert "random(text1..text3, syn_text * 2)" in str(told.value)
