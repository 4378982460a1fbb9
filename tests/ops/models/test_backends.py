"""One suite that every backend of a generative model passes: what becomes of a picture is the same whoever captions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from pairmill.flows.with_prefect.local_prefect import free_port
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.generation import Answering, Generation
from pairmill.ops.models.http.chat_messages import encode_picture
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.vision_language import vlm_loaded
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.generative_job import Queries
from pairmill.tasks.run.items.model_job import Piece
from tests.worlds.chat_server import UNICODE, chat_server, picture_hash
from tests.worlds.scripted_vlm import save_scripted

PLAIN = ["one", "two", "three", "four", "five", "six", "seven"]
ANSWERS: dict[str, list[str]] = {
    **{f"say-{word}": [word] for word in PLAIN},
    "say-unicode": UNICODE.split(),  # pyright: ignore[reportAssignmentType]
    "say-nothing": [],
    "refuse": ["I", "can't", "help", "with", "that."],
    "go-on": ["la", "lo", "la"],
    "too-big": ["too", "big"],
}
TOKENS = 12


@dataclass(frozen=True)
class Backend:
    """A backend, and how it is brought to give the answer of a case: a picture and a prompt for each."""

    model: Answering
    case: Callable[[str], tuple[np.ndarray, str]]

    def ask(self, cases: list[str]) -> list[Generation]:
        pictures, prompts = zip(*(self.case(each) for each in cases), strict=True)
        answers: dict[int, Generation] = {}
        for batch in self.model.batches(list(prompts), [picture.shape[:2] for picture in pictures]):
            ready = self.model.prepare([pictures[row] for row in batch], [prompts[row] for row in batch])
            answers |= dict(zip(batch, self.model.fetch(self.model.infer(ready, TOKENS)), strict=True))
        return [answers[row] for row in range(len(cases))]


def picture_of(case: str) -> np.ndarray:
    rng = np.random.default_rng(list(ANSWERS).index(case))
    return rng.integers(0, 255, size=(48, 40, 3), dtype=np.uint8)


def in_process(folder: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Backend:
    spec = save_scripted(folder / "model", ANSWERS)
    loaded = vlm_loaded.load(spec, "fp32", ())
    answer = loaded.answer

    def cramped(ready, max_tokens):
        if any(prompt == "too-big" for _, prompt in ready.rows):
            raise torch.cuda.OutOfMemoryError("no room")
        return answer(ready, max_tokens)

    monkeypatch.setattr(loaded, "answer", cramped)
    return Backend(VisionLanguageModel(spec, batch_size=4), lambda case: (picture_of(case), case))


def at_a_server(folder: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> Backend:
    port = free_port(0)
    ways = {"say-unicode": "unicode", "say-nothing": "null", "refuse": "refusal", "go-on": "length", "too-big": "500"}
    always = {picture_hash(picture_of(case)): how for case, how in ways.items()}
    said = {picture_hash(picture_of(case)): " ".join(words) for case, words in ANSWERS.items()}
    stack.enter_context(chat_server(port, folder, always=always, said=said, share=0.05, ways=["429", "500", "reset"]))
    return Backend(HttpModel(f"http:fake@http://127.0.0.1:{port}/v1", "png"), lambda case: (picture_of(case), "what?"))


@pytest.fixture(params=[in_process, at_a_server], ids=["hf", "http"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    torch.set_num_threads(1)
    with ExitStack() as stack:
        yield request.param(tmp_path, stack, monkeypatch)


def test_answers_come_in_the_order_of_the_questions(backend: Backend):
    cases = [f"say-{word}" for word in (PLAIN * 3)]
    found = backend.ask(cases)
    assert [each.text for each in found] == PLAIN * 3
    assert all(each.finish == "stop" and each.finished and not each.error for each in found)
    assert all(each.n_tokens > 0 and each.prompt_tokens > 0 for each in found)


def test_letters_of_any_script_come_through(backend: Backend):
    assert backend.ask(["say-unicode"])[0].text == UNICODE


def test_an_empty_answer_is_empty_and_no_error(backend: Backend):
    (found,) = backend.ask(["say-nothing"])
    assert (found.text, found.error) == ("", "") and found.finished


def test_a_refusal_is_an_answer_with_its_text(backend: Backend):
    (found,) = backend.ask(["refuse"])
    assert found.text == "I can't help with that." and not found.error


def test_an_answer_at_the_limit_is_cut_off(backend: Backend):
    (found,) = backend.ask(["go-on"])
    assert found.finish == "length" and not found.finished and found.text and not found.error


@pytest.mark.slow
def test_one_that_has_no_room_is_an_error_and_the_others_are_answered(backend: Backend):
    found = backend.ask(["say-one", "too-big", "say-two", "say-three"])
    assert [each.text for each in found] == ["one", "", "two", "three"]
    assert [bool(each.error) for each in found] == [False, True, False, False] and found[1].detail


def test_one_bad_picture_among_good_ones_has_no_answer_and_a_reason(backend: Backend):
    cases = ["say-one", "say-two", "say-three"]
    data: list[bytes | Fault] = [encode_picture(backend.case(case)[0], "png")[1] for case in cases]
    data[1] = b"\x89PNG\r\n\x1a\n and no more"
    decode = Decode(side=48, mode="exact")
    asked = [backend.case(case)[1] for case in cases]
    if isinstance(backend.model, HttpModel):  # which would be shown other pixels than the server knows
        decode = Decode(side=40, mode="exact")
    ask = Queries(backend.model, decode, TOKENS, asked[0])
    piece = Piece(("a", "b", "c"), list(zip(data, asked, strict=True)))
    job = CaptionPictures(ask, asked[0], "c", name="main")
    answers = job.fetch(job.infer(job.prepare(piece)))
    assert [answers.found[key].text for key in "abc"] == ["one", "", "three"]
    assert [(fault.item, bool(fault.reason)) for fault in answers.bad] == [("b", True)]
