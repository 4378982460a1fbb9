import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.text.generation_status import generation_status


@pytest.mark.parametrize("text", ["", "  \n", "...", "<>!?", "😀"])
def test_a_text_without_a_word_is_empty_finished_or_not(text: str):
    assert generation_status(text, True) == generation_status(text, False) == "empty"


@pytest.mark.parametrize(
    "text",
    [
        "a dog a dog a dog a dog a dog a dog",
        "The picture shows a cat. The picture shows a cat. The picture shows a cat. The picture shows a cat.",
        "A nice start, and then red red red red red red",
        "In the middle it goes and so on and so on and so on and so on and then it ends well.",
        "xyxyxyxyxyxyxyxyxyxyxyxyxyxyxyxy",
        "1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1, 2",
        ", ".join(["Dog", "DOG", "dog"] * 3),
    ],
)
def test_a_text_that_circles_is_repeating_finished_or_not(text: str):
    assert generation_status(text, True) == generation_status(text, False) == "repeating"


@pytest.mark.parametrize(
    "text",
    [
        "cat",
        "A very, very, very old dog.",
        "Row by row by row they came in, one by one by one.",
        "The man in the red hat and the woman in the red coat wait for the bus in the rain.",
        "There is a cup on the table and a cup on the shelf and a cup on the chair.",
        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10",
        "Hmmmmmm, aaaaaah!",
    ],
)
def test_a_plain_text_is_ok_when_finished_and_cut_off_when_not(text: str):
    assert generation_status(text, True) == "ok"
    assert generation_status(text, False) == "cut_off"


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=20, unique=True), st.integers(6, 9))
def test_any_unit_said_often_enough_is_found(unit: list[str], times: int):
    assert generation_status(" ".join(unit * times), True) == "repeating"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True))
def test_words_that_never_come_back_never_repeat(numbers: list[int]):
    assert generation_status(" ".join(f"word{number}" for number in numbers), True) == "ok"


@given(st.text(max_size=300), st.booleans())
def test_any_text_has_a_status(text: str, finished: bool):
    assert generation_status(text, finished) in ("ok", "empty", "repeating", "cut_off")
