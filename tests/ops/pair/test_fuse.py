import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.pair.fuse import check_template, fuse_prompt

TEMPLATE = "Caption: {caption}\nTags: {tags}\nSentence: {sentence}\nWrite one {{good}} sentence."


def test_the_texts_stand_where_the_template_says():
    found = fuse_prompt(TEMPLATE, " a red engine ", ["engine", "street"], "It waits.\n")
    assert found == "Caption: a red engine\nTags: engine, street\nSentence: It waits.\nWrite one {good} sentence."


ONE_LINE = "Combine into one description. Caption: {caption} Tags: {tags} Text: {sentence}"
A_LINE_EACH = (
    "An image shows: {caption}\nTags: {tags}\nA sentence that may belong to it: {sentence}\n"
    "Write one fluent description of the image. Use the sentence only where it agrees with the rest."
)


@pytest.mark.parametrize(
    ("template", "caption", "tags", "sentence", "expected"),
    [
        (ONE_LINE, "A dog.", [], "It ran.", "Combine into one description. Caption: A dog. Text: It ran."),
        (ONE_LINE, "A dog.", ["dog"], "", "Combine into one description. Caption: A dog. Tags: dog"),
        (ONE_LINE, "", ["dog"], "It ran.", "Combine into one description. Tags: dog Text: It ran."),
        (ONE_LINE, "A dog.", [], "", "Combine into one description. Caption: A dog."),
        (ONE_LINE, "", [], "", "Combine into one description."),
        (TEMPLATE, "A dog.", [], "It ran.", "Caption: A dog.\nSentence: It ran.\nWrite one {good} sentence."),
        (A_LINE_EACH, "A dog.", [], "It ran.", A_LINE_EACH.replace("Tags: {tags}\n", "").format(
            caption="A dog.", sentence="It ran.")),
        ("It is {caption}. It shows {tags}. Mix!", "a dog", [], "", "It is a dog. Mix!"),
        ("Tags:\n{tags}\nMix {caption}.", "a dog", [], "", "Tags:\nMix a dog."),
        ("Mix {caption} and {tags}.", "a dog", [], "", "Mix a dog and ."),
        ("{tags}|{sentence}", "a", [], "b", "|b"),
    ],
)  # fmt: skip
def test_what_holds_nothing_but_an_empty_field_is_left_out(
    template: str, caption: str, tags: list[str], sentence: str, expected: str
):
    assert fuse_prompt(template, caption, tags, sentence) == expected


@given(st.text(min_size=1).map(lambda text: text.strip() or "x"), st.lists(st.text(min_size=1), min_size=1))
def test_where_nothing_is_empty_the_template_is_filled_as_it_stands(text: str, tags: list[str]):
    for template in (ONE_LINE, A_LINE_EACH, TEMPLATE):
        expected = template.format(caption=text, tags=", ".join(tags), sentence=text)
        assert fuse_prompt(template, text, tags, text) == expected


@given(st.text(alphabet="ab:. \n{}", max_size=30))
def test_any_template_that_is_allowed_is_filled_without_a_trace_of_a_field(filler: str):
    template = filler.replace("{", "{{").replace("}", "}}") + "{tags}"
    assert fuse_prompt(template, "", ["cat"], "") == filler + "cat"


@given(st.text(), st.lists(st.text(), max_size=3), st.text())
def test_braces_in_the_texts_are_only_text(caption: str, tags: list[str], sentence: str):
    expected = f"x{caption.rstrip()}/{', '.join(tags)}/{sentence.strip()}"
    assert fuse_prompt("{caption}/{tags}/{sentence}", f"x{caption}", tags, sentence) == expected


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
