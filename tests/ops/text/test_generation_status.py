from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.recipe.parts_of_texts import CAPTION_PROMPT, FUSE_PROMPT
from pairmill.ops.pair.fuse import fuse_prompt, instructions
from pairmill.ops.text.generation_status import generation_status, without_reasoning

WORLDS = Path(__file__).parents[2] / "worlds"
FINISHES = ("stop", "length", "content_filter", "refusal", "eos")


@pytest.mark.parametrize("text", ["", "  \n", "...", "<>!?", "😀"])
def test_a_text_without_a_word_is_empty_finished_or_not(text: str):
    assert generation_status(text, "stop") == generation_status(text, "length") == "empty"


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
    assert generation_status(text, "stop") == generation_status(text, "length") == "repeating"


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I can’t assist with that request.",
        "I am sorry, I cannot describe this image.",
        "Sorry, I can't identify people in photos.",
        "I can't provide a description of this picture.",
        "I cannot see the image you are referring to.",
        "I'm unable to view images directly, but if you describe it to me I can help.",
        "I am not able to process this request.",
        "Unfortunately, I cannot access the picture.",
        "As an AI language model, I do not have eyes.",
        "As a large language model I am happy to help, but there is no picture.",
        "I don't have access to the image.",
        "I apologize, but I am unable to describe the content of this picture.",
        "\"I'm sorry, I can't assist with that.\"",
    ],
)
def test_a_model_that_says_that_it_cannot_refuses(text: str):
    assert generation_status(text) == generation_status(text, "length") == "refusal"


def test_refusals_of_many_languages_are_told_from_captions():
    refusals, captions = (
        [line.split("\t") for line in (WORLDS / f"{name}.tsv").read_text("utf-8").splitlines()]
        for name in ("refusals", "captions")
    )
    missed = [text for _, text in refusals if generation_status(text) != "refusal"]
    wrong = [text for _, text in captions if generation_status(text) != "ok"]
    assert len(refusals) == 462 and len(captions) == 369
    assert (missed, wrong) == ([], [])


@pytest.mark.parametrize("finish", ["length", "abort", "tool_calls", "error", "unknown", "null", ""])
def test_a_text_that_does_not_end_by_itself_is_cut_off(finish: str):
    assert generation_status("A red barn stands in", finish) == "cut_off"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<think>\nI see patches.\n</think>\n\nA field.", "A field."),
        ("I see patches.\n</think>\nA field.", "A field."),
        ("<think>I see patches, and", ""),
        ("A field.\n<think>Is it long enough?", "A field."),
        ("A field.<think>Is it?</think>", "A field."),
        ("<think>a</think>b<think>c</think> A field.", "A field."),
        ("<Thinking type='x'>a</Thinking> A field.", "A field."),
        ("<think>a</think><answer>A field.</answer>", "A field."),
        ("[THINK]a[/THINK]A field.", "A field."),
        ("◁think▷a◁/think▷A field.", "A field."),
        ("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>A field.", "A field."),
        ("<SUMMARY>a</SUMMARY><REASONING>b</REASONING><CONCLUSION>A field.</CONCLUSION>", "A field."),
        ("<unused94>thought\na<unused95>A field.", "A field."),
        ("&lt;think&gt;a&lt;/think&gt; A field.", "A field."),
        ("<think>a</think> b <think>c", "b"),
        ("<think>a</think><analysis>b</analysis> A field.", "A field."),
        ("<think>a</think> The tags <summary> and </summary>.", "The tags <summary> and </summary>."),
        ("<think>a</think>\n<answer>\nA field.\n</answer>", "A field."),
        ("<scratchpad>I see patches, and", ""),
    ],
)
def test_reasoning_is_no_part_of_an_answer(text: str, answer: str):
    assert without_reasoning(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        " A field. ",
        'A shirt with "<think>" on it.',
        "I think </b> is a tag.",
        "A slide titled [ANALYSIS] with three bars.",
        "A page with the headings [Summary] and [Notes] below a photo of a dog.",
        "[Summary] in red letters above a chart. [/Summary] in small ones below.",
        "The page shows the tags <summary> and </summary> in a code editor.",
        "An editor with the tag <think> in its first line.",
        "A diagram from <reasoning> to <reflection>.",
    ],
)
def test_marks_that_an_image_shows_are_kept(text: str):
    assert without_reasoning(text) == text


@pytest.mark.timeout(20)  # takes under 0.1 s; quadratic cost took minutes
def test_white_space_in_an_answer_takes_time_in_proportion():
    answer = "A" + "\n" * 400_000 + "field."
    assert without_reasoning(f"<think>a</think>{answer}") == answer


@pytest.mark.parametrize("finish", ["content_filter", "refusal"])
@pytest.mark.parametrize("text", ["", "A dog on a lawn."])
def test_what_was_withheld_is_a_refusal_whatever_it_says(finish: str, text: str):
    assert generation_status(text, finish) == "refusal"


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
        "A sign on a shop's door that says: Sorry, we are closed.",
        "Sorry, we are closed, says the sign on the door.",
        "I'm Sorry, a paperback by a young author, lies on a wooden table.",
        "I love New York, printed in black letters with a red heart on a white shirt.",
        "I can't believe it's not butter, a yellow tub on a kitchen shelf.",
        "We cannot be held responsible for lost property, reads the notice in the hall.",
        "I do not see a way out, says a thought bubble over the head of a cartoon mouse.",
        "A robot with the words 'As an AI language model' on its screen.",
        "As an assistant pours the wine, two guests look at the menu.",
        "As a large dog looks on, a child throws a ball.",
        "A screenshot of a chat in which a bot says that it cannot help with that.",
        "Help wanted: a hand-written note behind glass.",
        "An unhappy clown who seems to say sorry to the children around him.",
        "Unfortunately blurred: a runner in the rain.",
        "A picture of a camera, describe-it-yourself kit beside it.",
        "Two people describe something to each other with their hands.",
        "A man in front of a board with the tags 3, 5 and 7.",
        "One or two plain sentences are written on a small blackboard.",
        "A caption of a picture in a museum.",
        "We will not provide bags, says a paper at the till of the bakery.",
        "We do not provide parking, reads the sign.",
        "Sorry, we are unable to process payments, says a sign at a till.",
        '"I don\'t see it" reads the text on a poster.',
    ],
)
def test_a_plain_text_is_ok_when_finished_and_cut_off_when_not(text: str):
    told = (CAPTION_PROMPT, *instructions(FUSE_PROMPT))
    assert generation_status(text, "stop", told) == "ok"
    assert generation_status(text, "length", told) == "cut_off"


@pytest.mark.parametrize(
    "text",
    [
        "Describe this image in one or two plain sentences. Name what can be seen; guess nothing.",
        "A dog. Describe this image in one or two plain sentences.",
        "Write one fluent text of one or two sentences that describes the picture.",
        "Caption of a picture: A dog on a lawn.",
        "A sentence that may be about it: The dog ran. Keep what the caption says is seen.",
        "The dog ran. Take names and details from the rest only where they agree with it.",
    ],
)
def test_a_text_that_gives_the_instruction_back_is_a_copied_prompt(text: str):
    told = (CAPTION_PROMPT, *instructions(FUSE_PROMPT))
    assert generation_status(text, "stop", told) == generation_status(text, "length", told) == "copied_prompt"


@pytest.mark.parametrize("template", ["A photo of", "The image shows {caption}\nTags: {tags}"])
def test_a_beginning_that_the_prompt_leaves_open_is_no_copy(template: str):
    text = template.partition("{")[0].strip() + " a dog on green grass."
    assert generation_status(text, "stop", instructions(template)) == "ok"
    assert generation_status("Say what is seen: a dog.", "stop", ("Say what is seen:",)) == "copied_prompt"


@given(st.lists(st.sampled_from(["a", "dog", "ran", "over", "the", "lawn", "and", "then"]), min_size=9, max_size=25))
def test_what_was_filled_into_a_prompt_may_be_said_again(words: list[str]):
    sentence = " ".join(f"{word}{n}" for n, word in enumerate(words))
    assert sentence in fuse_prompt(FUSE_PROMPT, "A dog.", ["dog"], sentence)
    assert generation_status(sentence, "stop", instructions(FUSE_PROMPT)) == "ok"


@given(st.integers(0, 200), st.lists(st.integers(0, 10**6), max_size=10, unique=True))
def test_any_eight_words_of_an_instruction_are_found_wherever_they_stand(start: int, before: list[int]):
    words = CAPTION_PROMPT.split()
    piece = words[start % (len(words) - 7) :][:8]
    text = " ".join([*(f"word{n}" for n in before), *piece])
    assert generation_status(text, "stop", (CAPTION_PROMPT,)) == "copied_prompt"
    assert generation_status(" ".join(piece[:7]), "stop", (CAPTION_PROMPT,)) == "ok"


@given(st.lists(st.sampled_from("abcdefghij"), min_size=1, max_size=20, unique=True), st.integers(6, 9))
def test_any_unit_said_often_enough_is_found(unit: list[str], times: int):
    assert generation_status(" ".join(unit * times)) == "repeating"


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60, unique=True))
def test_words_that_never_come_back_never_repeat(numbers: list[int]):
    assert generation_status(" ".join(f"word{number}" for number in numbers)) == "ok"


@given(st.text(max_size=300), st.sampled_from(FINISHES), st.lists(st.text(max_size=80), max_size=3))
def test_any_text_has_a_status(text: str, finish: str, told: list[str]):
    statuses = ("ok", "empty", "refusal", "repeating", "copied_prompt", "cut_off")
    assert generation_status(text, finish, told) in statuses
