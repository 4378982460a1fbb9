"""Families of vision-language models: each loads, answers in batches as one by one, and is captured if that is right.

`pairmill doctor RECIPE` shows a user the same of a model of theirs.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.device.device import exact_inference
from pairmill.ops.models.generate import batching
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.trial import TOKENS, why_not_capturable, why_not_captured
from pairmill.ops.models.vision_language import vlm_loaded
from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm
from tests.worlds.model_answers import generate
from tests.worlds.tiny_families import FAMILIES, save_family
from tests.worlds.varlen_kernel import by_lengths

QUICK = ("smolvlm", "qwen2_5_vl", "internvl", "llava")
# Why a family decodes step by step: its words on a trial.
STEP_BY_STEP = {
    "qwen3_5": "keeps more than the keys and values of all tokens: it has a LinearAttention",
    "lfm2_vl": "keeps more than the keys and values of all tokens: it has a ",
    "aya_vision": "keeps more than the keys and values of all tokens: it has a DynamicSlidingWindowLayer",
    "cohere2_vision": "keeps more than the keys and values of all tokens: it has a DynamicSlidingWindowLayer",
    "mllama": "keeps keys of other things than the prompt's tokens",
    "gemma3": "keeps more than the keys and values",
    "paligemma": "gave another token",
    "florence2": "is an encoder and a decoder",
    "blip": "has a generate method of its own",
    "blip2": "has a generate method of its own",
    "instructblip": "has a generate method of its own",
}
NEEDS_PICTURES = ("blip", "blip2", "instructblip", "florence2")
PROMPTS = ["what is it", "Describe this image in one or two plain sentences", "what", "Name what can be seen"]
FAMILY = {name: pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in FAMILIES}
captured_families = pytest.mark.parametrize(
    "family", [each for name, each in FAMILY.items() if name not in STEP_BY_STEP], indirect=True, scope="module"
)


@pytest.fixture(scope="module", params=FAMILY.values())
def family(request: pytest.FixtureRequest) -> str:
    torch.set_num_threads(1)
    return request.param


@pytest.fixture(scope="module")
def spec(family: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_family(Path(tmp_path_factory.mktemp(family)), family)


def pictures() -> list[np.ndarray | None]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 255, (40 + 30 * row, 60, 3), np.uint8) for row in range(len(PROMPTS))]


def test_a_batch_answers_as_one_by_one(family: str, spec: str):
    shown, prompts = pictures(), PROMPTS
    if family not in NEEDS_PICTURES:
        shown, prompts = [*shown, None], [*PROMPTS, "what is this"]
    one = VisionLanguageModel(spec, batch_size=1)
    alone = [generate(one, [picture], [prompt], 8)[0] for picture, prompt in zip(shown, prompts, strict=True)]
    many = generate(VisionLanguageModel(spec), shown, prompts, 8)
    assert [each.text for each in many] == [each.text for each in alone]
    assert [each.n_tokens for each in many] == [each.n_tokens for each in alone]
    assert len({each.text for each in many}) > 1, "the answers must differ, or the order proves nothing"
    assert not any(prompt in each.text for prompt, each in zip(prompts, many, strict=True) if len(prompt) > 10)


def trial(loaded: LoadedVlm) -> str:
    """Try captured decoding as a GPU would, step by step."""
    if why := why_not_capturable(loaded.model):
        return why
    decoder = Decoder(loaded.model, [], 0)
    try:
        with exact_inference():
            return why_not_captured(loaded.model, loaded.answerer.placed(loaded.example()), decoder.generate)
    except Exception as error:
        return str(error)


def test_a_trial_tells_whether_decoding_can_be_captured(family: str, spec: str):
    said = trial(vlm_loaded.load(spec, "fp32", ()))
    assert STEP_BY_STEP[family] in said if family in STEP_BY_STEP else said == ""


@captured_families
@pytest.mark.parametrize("how", ["masks", "lengths"])
def test_a_batch_that_is_prefilled_in_parts_answers_as_generate_does(
    family: str, spec: str, how: str, monkeypatch: pytest.MonkeyPatch
):
    loaded, shown = vlm_loaded.load(spec, "fp32", ()), pictures()
    halves: list[dict[str, Any]] = []
    for rows in ((1, 3), (0,), (2,)):
        inputs = loaded.padded([(shown[row], PROMPTS[row]) for row in rows])
        halves.append(loaded.answerer.placed(inputs))
    decoder = Decoder(loaded.model, [], 0)
    calls = by_lengths(decoder, monkeypatch) if how == "lengths" else []
    with exact_inference():
        found = decoder.generate(halves, TOKENS)
        layers = loaded.model.config.get_text_config(decoder=True).num_hidden_layers
        assert not calls or [name for name, _ in calls].count("kernel") == layers * (len(halves) + TOKENS - 1)
        whole = loaded.answerer.placed(loaded.padded(list(zip(shown, PROMPTS, strict=True))))
        told = loaded.model.generate(**whole, max_new_tokens=TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0)
    assert torch.equal(found, told[:, -TOKENS:][[1, 3, 0, 2]])


@captured_families
def test_answers_of_a_captured_model_come_back_in_the_order_of_the_rows(
    family: str, spec: str, monkeypatch: pytest.MonkeyPatch
):
    """The whole way of a GPU, with steps that are not captured: in parts of one length, prefilled one after another."""
    shown, prompts = [*pictures(), None], [*PROMPTS, "what is this"]
    plain = generate(VisionLanguageModel(spec), shown, prompts, 8)
    loaded = vlm_loaded.load(spec, "fp32", ())
    monkeypatch.setattr(batching, "WEIGHTS", 1)
    monkeypatch.setitem(vars(loaded.answerer), "decoder", Decoder(loaded.model, loaded.answerer.ends, 0))
    lengths = loaded.lengths(prompts, [None if picture is None else picture.shape[:2] for picture in shown])
    order = sorted(range(4), key=lengths.__getitem__)  # shortest first, while parts begin with the longest
    ready = loaded.prepare([shown[row] for row in order], [prompts[row] for row in order])
    assert len(ready.parts) > 1
    found = dict(zip(order, loaded.answer(ready, 8), strict=True))
    captured = [*(found[row] for row in range(4)), *loaded.answer(loaded.prepare([None], prompts[-1:]), 8)]
    keys = ("text", "n_tokens", "finish", "prompt_tokens")
    assert [[getattr(each, key) for key in keys] for each in captured] == [
        [getattr(each, key) for key in keys] for each in plain
    ]


def word_of_unlike_places(loaded: LoadedVlm, shown: list[np.ndarray | None], prompts: list[str]) -> int:
    """Find the word whose places in the answers differ most: if it ends answers, they have unlike lengths."""
    with loaded.answerer.endless():
        said = loaded.answerer.generate(loaded.prepare(shown, prompts).parts, TOKENS).tolist()
    places = {word: {row.index(word) for row in said if word in row} - {0} for row in said for word in row}
    return max(places, key=lambda word: len(places[word]))


@captured_families
@pytest.mark.parametrize("how", ["masks", "lengths"])
def test_slots_that_are_refilled_answer_as_one_by_one(
    family: str, spec: str, how: str, monkeypatch: pytest.MonkeyPatch
):
    """Prompts and answers of unlike lengths, pictures of unlike sizes."""
    shown, prompts = pictures() * 2, [*PROMPTS, *PROMPTS[::-1]]
    one, loaded = VisionLanguageModel(spec, batch_size=1), vlm_loaded.load(spec, "fp32", ())
    monkeypatch.setattr(loaded.answerer, "ends", [word_of_unlike_places(loaded, shown, prompts)])
    alone = [generate(one, [picture], [prompt], TOKENS)[0] for picture, prompt in zip(shown, prompts, strict=True)]
    assert len({each.n_tokens for each in alone}) > 1
    monkeypatch.setitem(vars(loaded.answerer), "decoder", decoder := Decoder(loaded.model, loaded.answerer.ends, 0))
    if how == "lengths":
        by_lengths(decoder, monkeypatch)
    many = VisionLanguageModel(spec, batch_size=3)
    groups = [[0], [1, 2], [3, 4], [5], [6, 7]]
    monkeypatch.setattr(loaded.answerer, "batches", lambda lengths, most, room: groups if lengths else [])
    keys = ("text", "n_tokens", "finish", "prompt_tokens")
    assert [[getattr(each, key) for key in keys] for each in generate(many, shown, prompts, TOKENS)] == [
        [getattr(each, key) for key in keys] for each in alone
    ]
    assert loaded.answerer.slots._decoder is not None, "it answered in batches of their own"
    loaded.answerer.slots.settle()


def test_the_outcome_of_a_trial_is_cached_for_model_card_and_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    for name, why in (("llava", ""), ("paligemma", "gave another token")):
        loaded = vlm_loaded.load(save_family(tmp_path / name, name), "fp32", ())
        said = loaded.answerer._trial(Decoder(loaded.model, loaded.answerer.ends, 0))
        assert (why in said) if why else said == ""
        loaded.answerer.example = lambda: pytest.fail("the outcome is known")  # pyright: ignore[reportAttributeAccessIssue]
        assert loaded.answerer._trial(Decoder(loaded.model, [], 0)) == said


def test_florences_task_prompts_stand_alone(tmp_path: Path):
    model = VisionLanguageModel(save_family(tmp_path, "florence2"))
    shown = pictures()[:1]
    (task,), (words,) = (
        generate(model, shown, [prompt], 8) for prompt in ("<CAPTION>", "What does the image describe?")
    )
    assert task.text == words.text and task.prompt_tokens == words.prompt_tokens
