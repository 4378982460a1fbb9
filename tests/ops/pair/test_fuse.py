import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.pair.fuse import check_template, fuse_prompt

TEMPLATE = "Caption: {caption}\nTags: {tags}\nSentence: {sentence}\nWrite one {{good}} sentence."


def test_the_texts_stand_where_the_template_says():
    found = fuse_prompt(TEMPLATE, " a red engine ", ["engine", "street"], "It waits.\n")
    assert found == "Caption: a red engine\nTags: engine, street\nSentence: It waits.\nWrite one {good} sentence."


def test_a_picture_without_tags_leaves_the_place_empty():
    assert fuse_prompt("{tags}|{sentence}", "a", [], "b") == "|b"


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_braces_in_the_texts_are_only_text(caption: str, tags: list[str], sentence: str):
    expected = f"{caption.strip()}/{', '.join(tags)}/{sentence.strip()}"
    assert fuse_prompt("{caption}/{tags}/{sentence}", caption, tags, sentence) == expected


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{caption} and {title}", "'{title}' is not a field"),
        ("{caption.__class__}", "is not a field"),
        ("{tags[0]}", "is not a field"),
        ("{caption!r:>30}", "is not a field"),
        ("{}", "is not a field"),
        ("{caption", "fuse prompt: "),
        ("write a sentence", "none of the texts"),
    ],
)
def test_a_template_that_would_fail_or_say_nothing_is_refused_beforehand(template: str, message: str):
    with pytest.raises(ValueError, match=message):
        check_template(template)
