import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlavaNextImageProcessor, LlavaNextProcessor

from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.models.vision_language import vlm_loaded
from pairmill.ops.models.vision_language.picture_processor import LEFT_OUT, normalisation
from tests.worlds.golden import check_golden
from tests.worlds.model_answers import generate
from tests.worlds.tiny_families import save_family
from tests.worlds.tiny_vlm import save_vlm

PROMPTS = [
    "describe this picture please",
    "what is in this picture ? tell me more of the old red engine please",
    "what",
    "describe",
    "tell me more",
    "what is this",
    "please describe the old engine",
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module", params=["idefics3", "llava"])
def spec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_vlm(tmp_path_factory.mktemp(request.param), request.param)


def pictures(n: int) -> list[np.ndarray | None]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 255, size=(40 + 9 * place, 60, 3), dtype=np.uint8) for place in range(n)]


def answers(model: VisionLanguageModel, with_pictures: list, prompts: list[str], max_tokens: int = 12) -> list[tuple]:
    found = generate(model, with_pictures, prompts, max_tokens)
    return [(answer.text, answer.n_tokens, answer.finished, answer.error) for answer in found]


def test_a_batch_answers_as_one_by_one(spec: str):
    mixed = [*pictures(5), None, None]
    alone = answers(VisionLanguageModel(spec, batch_size=1), mixed, PROMPTS)
    assert answers(VisionLanguageModel(spec, batch_size=8), mixed, PROMPTS) == alone
    assert answers(VisionLanguageModel(spec, batch_size=3), mixed[::-1], PROMPTS[::-1]) == alone[::-1]
    assert len({text for text, *_ in alone}) > 3, "the answers must differ, or the order proves nothing"


def test_the_picture_and_the_prompt_both_matter(spec: str):
    model = VisionLanguageModel(spec)
    first, second = pictures(2)
    same_prompt = answers(model, [first, second, None], ["describe this"] * 3)
    assert len({text for text, *_ in same_prompt}) == 3
    assert answers(model, [first], ["describe this"]) != answers(model, [first], ["tell me more of the engine"])


@pytest.mark.parametrize("said", ["this <image> of the engine", "<image><image>", "</s> describe this"])
def test_a_prompt_that_writes_a_special_token_is_text(spec: str, said: str):
    """A sentence of the web may hold "<image>": it asks for no second picture."""
    (first,) = pictures(1)
    plain = answers(VisionLanguageModel(spec), [first, None], [said, said])
    spelled = said.replace("<image>", "< image>").replace("</s>", "< /s>")
    assert plain == answers(VisionLanguageModel(spec), [first, None], [spelled, spelled])


def test_an_answer_ends_at_its_end_token_and_counts_what_stands_before_it(tmp_path: Path):
    endless = save_vlm(tmp_path / "endless")
    unstopped = generate(VisionLanguageModel(endless), pictures(4), PROMPTS[:4], 20)
    # The most said word is made the end token: the same weights then stop where they would have said it.
    said = [answer.text.split() for answer in unstopped]
    end = max({word for words in said for word in words}, key=lambda word: sum(word in words for words in said))
    stopped = generate(VisionLanguageModel(save_vlm(tmp_path / "stopping", end=end)), pictures(4), PROMPTS[:4], 20)
    for before, after in zip(unstopped, stopped, strict=True):
        assert after.finished == (end in before.text.split())
        assert after.text.split() == before.text.split()[: len(after.text.split())]
        assert after.n_tokens < 20 if after.finished else after.n_tokens == 20
        assert end not in after.text.split()
    assert any(answer.finished for answer in stopped)


def test_an_answer_at_the_token_limit_is_not_finished(spec: str):
    for answer in generate(VisionLanguageModel(spec), pictures(2), PROMPTS[:2], 3):
        assert not answer.finished and answer.n_tokens == 3


def test_the_seconds_of_a_batch_are_shared_by_its_rows(spec: str):
    alike = ["tell me", "what is", "describe this", "please describe"]
    found = generate(VisionLanguageModel(spec, batch_size=2), pictures(4), alike, 4)
    assert all(answer.seconds > 0 for answer in found)
    assert len({answer.seconds for answer in found}) == 2


def test_a_twentieth_of_a_batch_is_padding_at_most(spec: str, tmp_path: Path):
    model = VisionLanguageModel(spec, batch_size=64)
    prompts = [" ".join(["engine"] * (1 + row * 7 % 40)) for row in range(200)]
    sizes: list = [None if row % 3 else (40 + row, 60) for row in range(200)]
    found = model.batches(prompts, sizes)
    assert sorted(row for rows in found for row in rows) == list(range(200))
    assert max(map(len, found)) > 8, "batches of one would prove nothing"
    for rows in found:
        shown = [np.zeros((*sizes[row], 3), np.uint8) if sizes[row] else None for row in rows]
        mask = model.prepare(shown, [prompts[row] for row in rows]).inputs["attention_mask"]
        assert mask.float().mean() >= 0.95
    assert model.batches(prompts, sizes) == found
    assert all(len({sizes[row] is None for row in rows}) == 1 for rows in found)


def test_pictures_of_unlike_numbers_of_tokens_are_batched_by_them(tmp_path: Path):
    made = vlm_loaded.load(save_vlm(tmp_path, "llava"), "fp32", ())
    sides = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    grids = [[32, 64], [64, 32], [64, 64]]
    several = LlavaNextProcessor(
        LlavaNextImageProcessor(**sides, image_grid_pinpoints=grids), made.processor.tokenizer, patch_size=8,  # pyright: ignore[reportArgumentType]
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip
    several.chat_template = made.processor.chat_template
    loaded = vlm_loaded.LoadedVlm(made.model, several)
    sizes: list = [[(40, 60), (100, 30), (64, 64), (30, 200)][row % 4] for row in range(24)]
    found = loaded.batches(["what"] * 24, sizes, 6)
    assert sorted(map(len, found)) == [6] * 4
    for rows in found:
        inputs = loaded.prepare([np.zeros((*sizes[row], 3), np.uint8) for row in rows], ["what"] * 6).inputs
        assert inputs["attention_mask"].all()


def test_several_threads_prepare_at_once(spec: str):
    model = VisionLanguageModel(spec)
    batches = [PROMPTS[row:] for row in range(6)] * 8

    def tokens(prompts: list[str]) -> list:
        return model.prepare(pictures(len(prompts)), prompts).inputs["input_ids"].tolist()

    with ThreadPoolExecutor(6) as feeders:
        assert list(feeders.map(tokens, batches)) == [tokens(prompts) for prompts in batches]


def test_what_a_gpu_normalises_equals_what_the_processor_does(tmp_path: Path):
    processor = vlm_loaded.load(save_vlm(tmp_path, "llava"), "fp32", ()).processor
    last = normalisation(processor)
    assert last is not None
    shown = [picture for picture in pictures(3) if picture is not None]
    bare = processor.image_processor(images=shown, return_tensors="pt", **LEFT_OUT)["pixel_values"]
    whole = processor.image_processor(images=shown, return_tensors="pt")["pixel_values"]
    assert bare.dtype == torch.uint8 and whole.std() > 0.5
    torch.testing.assert_close(last(bare), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("family", "settings", "expected"),
    [("qwen2_5_vl", (), True), ("internvl", (), True), ("smolvlm", (("tiles", 1),), True), ("smolvlm", (), False)],
)
def test_pixels_go_to_a_gpu_as_bytes_unless_padding_would_become_a_picture(
    family: str, settings: tuple[tuple[str, int], ...], expected: bool, tmp_path: Path
):
    """A quarter of the bytes of fp32: Qwen's patches, InternVL's tiles, SmolVLM's one tile; not its padded tiles."""
    loaded = vlm_loaded.load(save_family(tmp_path, family), "fp32", settings)
    whole = loaded.prepare(pictures(3), PROMPTS[:3]).inputs["pixel_values"]
    loaded.normalise = normalisation(loaded.processor)
    assert (loaded.normalise is not None) == expected
    inputs = loaded.prepare(pictures(3), PROMPTS[:3]).inputs
    assert (inputs["pixel_values"].dtype == torch.uint8) == expected
    torch.testing.assert_close(loaded.placed(inputs)["pixel_values"], whole, atol=1e-4, rtol=1e-4)


def test_nothing_to_answer_loads_nothing():
    assert generate(VisionLanguageModel("hf:/no/such/folder"), [], [], 5) == []


def test_without_a_chat_template_the_picture_stands_before_the_prompt(tmp_path: Path):
    spec = save_vlm(tmp_path, template=None)
    loaded = vlm_loaded.load(spec, "fp32", ())
    assert loaded._prompt("describe", True) == "<image>describe"
    assert loaded._prompt("describe", False) == "describe"
    assert len(generate(VisionLanguageModel(spec), pictures(1), ["describe"], 4)) == 1


def test_a_batch_that_does_not_fit_is_halved_and_an_item_that_never_fits_is_named(
    spec: str, monkeypatch: pytest.MonkeyPatch
):
    alike = ["tell me", "what is", "describe this", "please describe", "the engine"]
    expected = answers(VisionLanguageModel(spec), pictures(5), alike)
    loaded = vlm_loaded.load(spec, "fp32", ())
    room, sizes = loaded.answer, []

    def cramped(ready, max_tokens):
        prompts = [prompt for _, prompt in ready.rows]
        sizes.append(len(prompts))
        if len(prompts) > 2 or alike[2] in prompts:
            raise torch.cuda.OutOfMemoryError("no room")
        return room(ready, max_tokens)

    monkeypatch.setattr(loaded, "answer", cramped)
    found = generate(VisionLanguageModel(spec), pictures(5), alike, 12)
    assert found[2] == Generation("", 0, "length", 0.0, "out_of_memory", "no room for it alone")
    others = [(answer.text, answer.n_tokens, answer.finished, answer.error) for answer in found]
    assert others[:2] + others[3:] == expected[:2] + expected[3:]
    assert sizes[0] == 5 and max(sizes[1:]) <= 3


def test_a_model_that_does_not_fit_while_it_loads_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stored as an answer, it would be an empty caption of every picture."""

    def full(self: torch.nn.Module, *args: object, **options: object) -> torch.nn.Module:
        raise torch.cuda.OutOfMemoryError("no room for the weights")

    spec = save_vlm(tmp_path)
    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(ModelError, match=r"does not fit the GPU: its weights take .*--model NAME:gpus=1"):
        generate(VisionLanguageModel(spec), pictures(2), PROMPTS[:2], 5)


def test_it_travels_without_weights_and_loads_once_a_process(spec: str):
    model = VisionLanguageModel(spec)
    before = answers(model, pictures(1), ["what"])
    sent = pickle.dumps(model)
    assert len(sent) < 1_000
    assert answers(pickle.loads(sent), pictures(1), ["what"]) == before
    with ThreadPoolExecutor(4) as several:
        loaded = {id(each) for each in several.map(lambda _: vlm_loaded.load(spec, "fp32", ()), range(8))}
    assert len(loaded) == 1


def test_bf16_answers_too(spec: str):
    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported(False):
        pytest.skip("this GPU has no bfloat16")
    assert len(generate(VisionLanguageModel(spec, precision="bf16"), [*pictures(1), None], PROMPTS[:2], 5)) == 2


def test_a_folder_that_is_no_such_model_says_so(tmp_path: Path):
    spec = save_vlm(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ModelError, match="does not load"):
        generate(VisionLanguageModel(spec), [None], ["what"], 3)
    with pytest.raises(ModelError, match="hf:NAME_OR_FOLDER"):
        generate(VisionLanguageModel(f"open_clip:local-dir:{tmp_path}"), [None], ["what"], 3)


def test_golden_values_of_this_version(tmp_path: Path):
    model = VisionLanguageModel(save_vlm(tmp_path))
    check_golden("vlm", model.version, answers(model, [*pictures(2), None], PROMPTS[:3], 8))
