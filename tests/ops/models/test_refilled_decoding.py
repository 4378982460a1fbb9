"""Slots that are refilled as answers end: each answer is that of its prompt alone, whatever runs beside it."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.ops.models.backends import LanguageModel
from pairmill.ops.models.device import run_notes
from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.generate import cuda_graph_decoding
from pairmill.ops.models.generate.batching import BatchPart
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.refilled_decoding import RefilledDecoder
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.language.language_model_loaded import LoadedGenerator, load
from tests.examples import slow_but
from tests.ops.models.test_captured_decoding import PAD, llama, padded, twin
from tests.worlds.model_answers import generate_texts
from tests.worlds.varlen_kernel import by_lengths

FUSER = f"hf:{Path(__file__).parents[3] / 'infra' / 'demo' / 'models' / 'fuser'}"
WORDS = "a red circle beside two blue squares under the old tree with one dog and a green star"
FULL = torch.cuda.OutOfMemoryError("CUDA out of memory.")


def batch_of(lengths: list[int], seed: int) -> BatchPart:
    return BatchPart(list(range(len(lengths))), padded(lengths, seed=seed))


def end_of(model: Any) -> int:
    """The most said word: with it as the end token, answers have unlike lengths."""
    said = twin(model, padded([9, 5, 12, 30, 2, 7], seed=3), 40, [])
    return int(said[:, 1:].flatten().mode().values)


def alone(model: Any, part: BatchPart, most: int, end: int) -> list[list[int]]:
    """What transformers says to each prompt by itself."""
    found = []
    for ids, mask in zip(part.inputs["input_ids"], part.inputs["attention_mask"], strict=True):
        kept = {"input_ids": ids[mask.bool()][None], "attention_mask": mask[mask.bool()][None]}
        found.append(twin(model, kept, most, [end])[0].tolist())
    return found


@pytest.mark.parametrize("how", slow_but(["fp64"], ["fp64", "eager", "penalty", "by lengths"]))
def test_each_answer_is_that_of_its_prompt_alone(how: str, monkeypatch: pytest.MonkeyPatch):
    torch.set_num_threads(1)
    monkeypatch.setattr(cuda_graph_decoding, "window_of", lambda columns: columns)  # no step sees more than it needs
    model = llama(**({"attn_implementation": "eager"} if how == "eager" else {}))
    model = model.double() if how in ("fp64", "by lengths") else model
    model.generation_config.repetition_penalty = 1.3 if how == "penalty" else None
    end, rng = end_of(model), np.random.default_rng(7)
    batches = [batch_of(rng.integers(1, 40, rng.integers(1, 4)).tolist(), seed) for seed in range(18)]
    batches.insert(9, batch_of([150, 3], 50))  # longer than the buffers so far
    limits = [int(rng.integers(1, 30)) for _ in batches]
    slots = RefilledDecoder(Decoder(model, [end], PAD), 5)
    calls = by_lengths(slots.decoder, monkeypatch) if how == "by lengths" else []
    beside: list[int] = []
    with torch.inference_mode():
        running = []
        for part, most in zip(batches, limits, strict=True):
            made = slots.launch([part], most, dict)
            assert made is not None
            running.append(made)
            beside.append(len({id(slot.batch) for slot in slots._active.values()}))
        slots.close()
        before = list(calls)  # what follows is transformers' own
        expected = [alone(model, part, most, end) for part, most in zip(batches, limits, strict=True)]
        assert [made.tokens().tolist() for made in running] == expected
    assert max(beside) > 2, "no batch ran beside others"
    assert not calls or {"masked", "sdpa"}.isdisjoint(name for name, _ in before)
    lengths = [len(row) - row.count(PAD) for rows in expected for row in rows]
    assert len(set(lengths)) > 5, "answers must have unlike lengths, or no slot waits for another"


def prompts() -> list[str]:
    words, rng = WORDS.split(), np.random.default_rng(2)
    return [" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(18)]


@pytest.fixture
def fuser(monkeypatch: pytest.MonkeyPatch) -> LoadedGenerator:
    """The demo's fuser as a GPU would run it, with steps that are not captured."""
    torch.set_num_threads(1)
    loaded = load(FUSER, "fp32")
    model = LanguageModel(FUSER)
    said = [each.text for each in generate_texts(model, prompts(), 12)]
    assert len(set(said)) > 8
    monkeypatch.setitem(vars(loaded.answerer), "decoder", Decoder(loaded.model, loaded.answerer.ends, 0))
    monkeypatch.setattr(loaded.answerer, "batches", lambda lengths, most, room: [[n] for n in range(len(lengths))])
    loaded.answerer.slots._most = loaded.answerer.slots._decoder = None
    run_notes.take()
    return loaded


def texts(found: list[Generation]) -> list[tuple[str, int, str, int]]:
    return [(each.text, each.n_tokens, each.finish, each.prompt_tokens) for each in found]


@pytest.fixture(scope="module")
def plain() -> list[tuple[str, int, str, int]]:
    return texts([each for prompt in prompts() for each in generate_texts(LanguageModel(FUSER), [prompt], 12)])


def test_callers_of_an_engine_get_their_own_answers_while_their_pieces_share_the_slots(
    fuser: LoadedGenerator, plain: list[Any]
):
    class Halves:
        model = LanguageModel(FUSER, batch_size=6)
        beside = 0

        def prepare(self, piece: list[str]) -> Any:
            return self.model.prepare([None] * len(piece), piece)

        def infer(self, ready: Any) -> Any:
            running: Any = self.model.infer(ready, 12)
            active = fuser.answerer.slots._decoder
            self.beside = max(self.beside, len({id(each.batch) for each in active._active.values()} if active else ()))
            return running

        def stepwise(self, running: Any) -> Any:
            return running

        def fetch(self, running: Any) -> list[Generation]:
            return self.model.fetch(running)

    pieces = [prompts()[start : start + 2] for start in range(0, 18, 2)]
    engine = Engine(halves := Halves(), 2)
    with ThreadPoolExecutor(2) as callers:
        runs = [callers.submit(engine.run, some) for some in (pieces[:5], pieces[5:])]
        found = [each for run in runs for piece in run.result() for each in piece]
    engine.close()
    assert texts(found) == plain
    assert halves.beside >= 3
    assert all(each.seconds > 0 for each in found)


def test_a_batch_of_its_own_waits_for_what_is_in_the_slots(fuser: LoadedGenerator, plain: list[Any]):
    """They share the decoder's memory."""
    model = LanguageModel(FUSER, batch_size=6)
    running = model.infer(model.prepare([None], prompts()[:1]), 12)
    apart = fuser.answer(fuser.prepare(prompts()[1:4]), 12)
    assert texts([*model.fetch(running), *apart]) == plain[:4]


def failing(monkeypatch: pytest.MonkeyPatch, decoder: Any, name: str, at: int, error: Exception) -> None:
    """Let the ``at``-th call of a method fail."""
    calls, real = iter(range(10_000)), getattr(decoder, name)

    def call(*given: Any) -> Any:
        if next(calls) == at:
            raise error
        return real(*given)

    monkeypatch.setattr(decoder, name, call)


@pytest.mark.parametrize(
    ("name", "error", "said"),
    [
        ("prefill", FULL, ""),
        ("next_tokens", FULL, "no memory for 6 answers at once, 3 are generated from now on"),
        ("buffers", FULL, "no memory for 6 answers at once, 3 are generated from now on"),
        (
            "next_tokens",
            RuntimeError("cannot capture this"),
            "step by step, which is slower than captured: cannot capture",
        ),
    ],
)
def test_what_fails_is_answered_anew_and_all_answers_are_given(
    name: str, error: Exception, said: str, fuser: LoadedGenerator, plain: list[Any], monkeypatch: pytest.MonkeyPatch
):
    failing(monkeypatch, fuser.answerer.decoder, name, 0 if name == "buffers" else 9, error)
    assert texts(generate_texts(LanguageModel(FUSER, batch_size=6), prompts(), 12)) == plain
    notes = run_notes.take()
    assert (said in notes[0]) if said else not notes
    assert (fuser.answerer.decoder is None) == ("step by step" in said)


def test_a_row_that_never_fits_is_a_fault_and_no_other_is(
    fuser: LoadedGenerator, plain: list[Any], monkeypatch: pytest.MonkeyPatch
):
    decoder: Any = fuser.answerer.decoder
    real, unfit = decoder.prefill, fuser.tokenize(prompts()[7])

    def prefill(inputs: dict[str, torch.Tensor], place: Any) -> Any:
        if any(row[-len(unfit) :] == unfit for row in inputs["input_ids"].tolist()):
            raise FULL
        return real(inputs, place)

    monkeypatch.setattr(decoder, "prefill", prefill)
    found = generate_texts(LanguageModel(FUSER, batch_size=6), prompts(), 12)
    assert [n for n, each in enumerate(found) if each.error] == [7] and found[7].error == "out_of_memory"
    assert texts(found[:7] + found[8:]) == plain[:7] + plain[8:]


def test_a_broken_device_ends_every_running_batch(fuser: LoadedGenerator, monkeypatch: pytest.MonkeyPatch):
    decoder: Any = fuser.answerer.decoder
    assert_ = RuntimeError("CUDA error: device-side assert triggered")
    model = LanguageModel(FUSER, batch_size=6)
    running: Any = [model.infer(model.prepare([None], [prompt]), 12) for prompt in prompts()[:4]]
    monkeypatch.setattr(decoder, "next_tokens", lambda *_: (_ for _ in ()).throw(assert_))
    for each in running:
        with pytest.raises(RuntimeError, match="assert"):
            model.fetch(each)
    assert run_notes.take() == ()
    fuser.answerer.slots._decoder = None


def test_prompts_of_no_token_and_of_too_many_are_answered_beside_the_others(fuser: LoadedGenerator, plain: list[Any]):
    model = LanguageModel(FUSER, batch_size=6)
    given = [prompts()[0], " ".join(["red"] * fuser.context), prompts()[1]]
    found = model.fetch(model.infer(model.prepare([None] * 3, given), 12))
    assert texts([found[0], found[2]]) == plain[:2] and found[1].error == "too_large"
