import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from transformers import BertConfig

from pairmill.ops.models.clip import clip_loaded
from pairmill.ops.models.clip.clip import Clip, ClipTower
from pairmill.ops.models.clip.clip_loaded import compile_towers
from pairmill.ops.models.device import run_notes
from pairmill.ops.models.model_digest import ModelError
from tests.worlds.golden import check_golden
from tests.worlds.tiny import save_clip

SENTENCES = [
    "a red fire engine",
    "a",
    "the crew of the old engine waits beside the station for the next call of a long and quiet night in the town",
    "",
    "cat",
    "one two three four five six seven eight nine ten " * 12,
]


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clip(tmp_path_factory.mktemp("clip"))


def pictures(n: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    sizes = [(32, 32), (48, 32), (32, 90), (224, 300), (20, 24)]
    return [rng.integers(0, 256, size=(*sizes[place % len(sizes)], 3), dtype=np.uint8) for place in range(n)]


def full_length(spec: str, texts: list[str]) -> np.ndarray:
    """The twin: open_clip's own encoder on sentences padded to the model's whole context."""
    loaded = clip_loaded.load(spec, "fp32")
    with torch.inference_mode():
        return loaded.model.encode_text(loaded.tokenizer(texts).to(loaded.device), normalize=True).cpu().numpy()


def test_vectors_have_length_one_and_the_dimension_of_the_model(spec: str):
    clip = Clip(spec)
    images, texts = clip.embed_images(pictures(7)), clip.embed_texts(SENTENCES)
    assert images.shape == (7, 16) and texts.shape == (len(SENTENCES), 16) and clip.loaded.dimension == 16
    assert images.dtype == texts.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(np.vstack([images, texts]), axis=1), 1, atol=1e-5)
    assert np.linalg.matrix_rank(images) > 1


@pytest.mark.parametrize("custom", [False, True])
def test_one_tower_gives_the_vectors_of_the_whole_model_and_holds_only_its_own_weights(tmp_path: Path, custom: bool):
    spec = save_clip(tmp_path, custom_text=custom)
    whole, words, images = Clip(spec), ClipTower(spec), ClipTower(spec, side="image")
    np.testing.assert_array_equal(words.embed_texts(SENTENCES), whole.embed_texts(SENTENCES))
    np.testing.assert_array_equal(images.embed_images(pictures(3)), whole.embed_images(pictures(3)))
    assert (
        words.loaded.dimension == images.loaded.dimension == whole.loaded.dimension
        and images.image_size == whole.image_size
    )
    held = [sum(each.numel() for each in clip.loaded.model.parameters()) for clip in (words, images)]
    total = sum(each.numel() for each in whole.loaded.model.parameters())
    assert max(held) < total and total <= sum(held) < 1.2 * total  # small parts of the text tower stay


def test_nothing_to_embed_gives_no_rows(spec: str):
    assert Clip(spec).embed_images([]).shape == (0, 16)
    assert Clip(spec).embed_texts([]).shape == (0, 16)


@pytest.mark.parametrize("custom", [False, True], ids=["text inside the model", "text tower of its own"])
def test_a_text_cut_at_the_longest_of_its_batch_equals_one_padded_to_77(tmp_path: Path, custom: bool):
    spec = save_clip(tmp_path, custom_text=True) if custom else save_clip(tmp_path)
    expected = full_length(spec, SENTENCES)
    for batch_size in (1, 2, 64):
        np.testing.assert_allclose(Clip(spec, batch_size=batch_size).embed_texts(SENTENCES), expected, atol=1e-5)


def test_the_cut_batch_runs_fewer_tokens(spec: str, monkeypatch: pytest.MonkeyPatch):
    loaded = clip_loaded.load(spec, "fp32")
    seen: list[int] = []
    monkeypatch.setattr(loaded.model.transformer, "forward", _recording(loaded.model.transformer.forward, seen))
    Clip(spec).embed_texts(["a red fire engine", "cat"])
    assert seen == [6]  # start, four words, end


def _recording(forward, seen: list[int]):
    def run(hidden, attn_mask=None):
        seen.append(hidden.shape[1])
        return forward(hidden, attn_mask=attn_mask)

    return run


@pytest.mark.parametrize(
    "text",
    [{"no_causal_mask": True}, {"embed_cls": True}, {"pool_type": "last"}, {"pool_type": "first"}],
    ids=lambda text: next(iter(text)) + "=" + str(next(iter(text.values()))),
)
def test_a_tower_that_cannot_be_cut_gets_every_token(tmp_path: Path, text: dict):
    spec = save_clip(tmp_path, text=text, custom_text=True)
    assert not clip_loaded.load(spec, "fp32").text.is_truncatable
    np.testing.assert_allclose(Clip(spec).embed_texts(SENTENCES), full_length(spec, SENTENCES), atol=1e-6)


def test_a_tower_read_at_its_eos_token_is_cut_there(tmp_path: Path):
    spec = save_clip(tmp_path, text={"pool_type": "eos", "eos_id": 49407}, custom_text=True)
    assert clip_loaded.load(spec, "fp32").text.is_truncatable
    np.testing.assert_allclose(Clip(spec).embed_texts(SENTENCES), full_length(spec, SENTENCES), atol=1e-5)


def test_the_company_of_a_row_never_moves_its_vector(spec: str):
    many = pictures(23)
    together, alone = Clip(spec).embed_images(many), Clip(spec, batch_size=1).embed_images(many)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    texts = SENTENCES * 4
    np.testing.assert_allclose(
        Clip(spec, batch_size=5).embed_texts(texts), Clip(spec, batch_size=1).embed_texts(texts), atol=1e-5
    )


def test_pictures_are_fitted_as_open_clip_fits_them(spec: str):
    from open_clip.transform import PreprocessCfg, image_transform_v2

    loaded = clip_loaded.load(spec, "fp32")
    own: Any = image_transform_v2(PreprocessCfg(**loaded.model.visual.preprocess_cfg), is_train=False)
    for picture in pictures(5, seed=3):
        expected = own(Image.fromarray(picture))
        found = (loaded.fit(picture).float() - loaded.mean.cpu()) * loaded.scale.cpu()
        assert found.shape == expected.shape
        # Pillow and torch round a resized pixel alike, save for the last of 255 steps.
        assert (found - expected).abs().max() <= 1.01 / 255 / min(loaded.model.visual.preprocess_cfg["std"])


@pytest.mark.parametrize("mode", ["squash", "longest", "shortest"])
def test_each_way_of_resizing_ends_at_the_size_of_the_tower(tmp_path: Path, mode: str):
    loaded = clip_loaded.load(save_clip(tmp_path, preprocess={"resize_mode": mode}), "fp32")
    assert {tuple(loaded.fit(picture).shape) for picture in pictures(5)} == {(3, 32, 32)}
    half = np.zeros((32, 64, 3), np.uint8)
    half[:, 32:] = 255
    fitted = loaded.fit(half)[0].float()
    if mode == "longest":  # 16 rows of picture between two bars of the fill colour
        assert fitted[:8].max() == 0 and fitted[-8:].max() == 0 and fitted[16, -1] == 255
    else:
        assert fitted[:, 0].max() < 5 and fitted[:, -1].min() > 250


def test_a_bf16_model_never_takes_the_host_memory_of_fp32_and_has_its_rounded_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spec, made, create = save_clip(tmp_path), [], open_clip.create_model

    def creating(*given: Any, **named: Any) -> Any:
        model = create(*given, **named)
        made.append({each.dtype for each in model.parameters()})
        return model

    monkeypatch.setattr(open_clip, "create_model", creating)
    rough, exact = (clip_loaded.load(spec, precision).model.state_dict() for precision in ("bf16", "fp32"))
    assert made == [{torch.bfloat16}, {torch.float32}]
    assert all(torch.equal(rough[name], exact[name].to(rough[name].dtype)) for name in exact)


def test_bf16_stays_close_to_fp32_and_batches_alike(spec: str):
    if torch.cuda.is_available() and not torch.cuda.is_bf16_supported(False):
        pytest.skip("this GPU has no bfloat16")
    exact, rough = Clip(spec), Clip(spec, precision="bf16")
    assert ((exact.embed_images(pictures(9)) * rough.embed_images(pictures(9))).sum(1) > 0.99).all()
    assert ((exact.embed_texts(SENTENCES) * rough.embed_texts(SENTENCES)).sum(1) > 0.99).all()


def test_a_precision_that_does_not_exist_is_refused(spec: str):
    with pytest.raises(ModelError, match="fp32, bf16"):
        Clip(spec, precision="fp8").embed_texts(["a"])


def test_it_travels_without_weights_and_loads_once_a_process(spec: str):
    clip = Clip(spec)
    before = clip.embed_texts(["a red fire engine"])
    sent = pickle.dumps(clip)
    assert len(sent) < 1_000
    np.testing.assert_array_equal(pickle.loads(sent).embed_texts(["a red fire engine"]), before)
    assert Clip(spec, batch_size=3).loaded is clip.loaded


def test_a_model_whose_weights_do_not_fit_its_config_says_so(tmp_path: Path):
    spec = save_clip(tmp_path)
    weights = tmp_path / "open_clip_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match="does not load"):
        Clip(spec).embed_texts(["a"])


def test_encode_text_equals_the_tower_for_a_single_token_row(spec: str):
    loaded = clip_loaded.load(spec, "fp32")
    tokens = loaded.tokenizer(["", "cat"])
    with torch.inference_mode():
        whole = loaded.model.encode_text(tokens.to(loaded.device)).cpu()
        np.testing.assert_allclose(loaded.text.encode(tokens).cpu(), whole, atol=1e-5)


def test_golden_values_of_this_version(spec: str):
    clip = Clip(spec)
    vectors = {"images": clip.embed_images(pictures(5)), "texts": clip.embed_texts(SENTENCES)}
    check_golden("clip", clip.version, {name: np.round(rows[:, :6], 5) for name, rows in vectors.items()})


def test_batches_of_a_gpu_have_as_many_tokens_whatever_the_sentences(spec: str, monkeypatch: pytest.MonkeyPatch):
    loaded = clip_loaded._load(spec, "fp32")
    texts = [" ".join(["red"] * (1 + n % 7)) for n in range(150)] + SENTENCES
    plain = loaded.prepare_sentences(texts, 4)
    monkeypatch.setattr(loaded, "device", torch.device("cuda"))
    ready = loaded.prepare_sentences(texts, 4)
    sizes = [len(rows) * int(loaded.text.ends(tokens).max() + 1) for rows, tokens in ready.batches]
    assert max(sizes) <= 4 * loaded.usual_tokens and len(ready.batches) < len(plain.batches) / 2
    assert sorted(row for rows, _ in ready.batches for row in rows) == list(range(len(texts)))
    found, expected = (
        each.launched(loaded.embed_tokens).fetched(np.float32, loaded.dimension) for each in (ready, plain)
    )
    np.testing.assert_allclose(found, expected, atol=1e-5)
    monkeypatch.setattr(loaded.text, "is_truncatable", False)
    assert all(len(rows) <= 4 for rows, _ in loaded.prepare_sentences(texts, 4).batches)


def traced(call: Any, **_: Any) -> Any:
    """Compile without code of the machine: the graph is traced, its operations run one by one."""
    return COMPILE(call, backend="eager", dynamic=True, fullgraph=True)


COMPILE: Any = torch.compile


@pytest.fixture(params=["open_clip", "eva"])
def loaded(request: pytest.FixtureRequest, spec: str) -> clip_loaded.LoadedClip:
    """A CLIP that no other test has loaded; with two blocks of EVA02-E-14-plus's kind behind its picture tower."""
    made = clip_loaded._load(spec, "fp32")
    if request.param == "eva":
        from timm.models.eva import EvaBlockPostNorm

        blocks = [EvaBlockPostNorm(16, 2).eval() for _ in range(2)]
        made.model.visual = torch.nn.Sequential(made.model.visual, torch.nn.Unflatten(0, (-1, 1)), *blocks)
        made.model.visual.append(torch.nn.Flatten(0, 1))
    return made


def vectors(loaded: clip_loaded.LoadedClip, n: int) -> np.ndarray:
    shown = loaded.prepare_pictures(pictures(n), n).launched(loaded.embed_images).fetched(np.float32, 16)
    told = loaded.prepare_sentences(SENTENCES * n, 4).launched(loaded.embed_tokens).fetched(np.float32, 16)
    return np.vstack([shown, told])


@pytest.mark.slow
def test_compiled_towers_give_the_same_vectors_by_one_graph_for_all_blocks_and_shapes(
    loaded: clip_loaded.LoadedClip, monkeypatch: pytest.MonkeyPatch
):
    from torch._dynamo.utils import counters

    monkeypatch.setattr(torch, "compile", traced)
    torch._dynamo.reset()
    counters.clear()
    run_notes.take()
    before = [vectors(loaded, n) for n in (5, 3)]
    compile_towers(loaded.model, loaded.embed_examples)
    assert run_notes.take() == ()
    graphs = counters["stats"]["unique_graphs"]
    assert 0 < graphs <= 3 and not counters["graph_break"]
    for n, plain in zip((5, 3), before, strict=True):
        np.testing.assert_allclose(vectors(loaded, n), plain, atol=1e-5)
    assert counters["stats"]["unique_graphs"] <= graphs + 1, "further shapes have no graph of their own"


@pytest.mark.parametrize(("change", "why"), [(None, "no compiler"), (2.0, "other vectors, of cosine")])
def test_towers_that_do_not_compile_or_change_are_left_as_they_are(
    change: float | None, why: str, spec: str, monkeypatch: pytest.MonkeyPatch
):
    def broken(call: Any, **_: Any) -> Any:
        def run(hidden: torch.Tensor, *given: Any, **how: Any) -> torch.Tensor:
            if change is None:
                raise RuntimeError("no compiler")
            return call(hidden, *given, **how) + change * torch.randn(hidden.shape)

        return run

    loaded = clip_loaded._load(spec, "fp32")
    before = vectors(loaded, 5)
    monkeypatch.setattr(torch, "compile", broken)
    run_notes.take()
    compile_towers(loaded.model, loaded.embed_examples)
    (said,) = run_notes.take()
    assert why in said and "CLIP runs uncompiled" in said
    np.testing.assert_array_equal(vectors(loaded, 5), before)


def test_a_text_tower_of_transformers_is_built_from_its_own_folder_wherever_that_lies(tmp_path):
    folder, tokens = tmp_path / "clip", Path("infra/demo/models/clip")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 16}
    sizes |= {"vocab_size": 40_000, "max_position_embeddings": 16}
    BertConfig(**sizes).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokens / name).read_bytes())
    text = {"hf_model_name": ".", "hf_tokenizer_name": ".", "hf_pooler_type": "mean_pooler", "hf_proj_type": "linear"}
    picture = {"timm_model_name": "test_convnext", "image_size": 32}
    model = {"embed_dim": 8, "vision_cfg": picture, "text_cfg": {**text, "context_length": 16}}
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": model}))
    model["text_cfg"] |= {"hf_model_name": str(folder), "hf_model_pretrained": False}
    made = open_clip.CustomTextCLIP(**model)
    save_file(made.state_dict(), folder / "open_clip_model.safetensors")
    made.eval()
    clip = Clip(f"open_clip:local-dir:{folder}")
    ids = open_clip.get_tokenizer(f"local-dir:{folder}")(["a"])
    expected = torch.nn.functional.normalize(made.encode_text(ids), dim=-1).detach().numpy()
    np.testing.assert_allclose(clip.embed_texts(["a"]), expected, atol=1e-5)
