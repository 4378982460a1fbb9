"""Towers that attend to all windows in one call; the kernel's stand-in is transformers' own way, a call a window."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pairmill.ops.models.device import run_notes
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.quick_parts import pack_windows, unpack_windows, windows_apart
from pairmill.ops.models.vision_language import vlm_loaded
from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm
from tests.ops.models.test_families import QUICK
from tests.worlds.tiny_families import FAMILIES, save_family
from tests.worlds.varlen_kernel import attend, by_bounds

WINDOWS = ("qwen2_5_vl", "qwen2_vl", "qwen3_vl", "glm4v", "pixtral", "mistral3", "qwen3_5")
LAYERS = 2  # of each tiny tower


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[str]]:
    """Let a stand-in be torch's kernel; return the calls of it and of torch's function, by name."""
    torch.set_num_threads(1)

    def watch(stand_in: Any) -> list[str]:
        found: list[str] = []

        def counted(name: str, call: Any) -> Any:
            return lambda *given, **how: found.append(name) or call(*given, **how)

        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", counted("packed", stand_in))
        monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", counted("apart", attend))
        return found

    return watch


def features(loaded: LoadedVlm) -> torch.Tensor:
    with torch.inference_mode():
        return loaded.model(**loaded.answerer.placed(loaded.example())).logits


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else pytest.mark.slow) for n in FAMILIES])
def test_a_tower_with_windows_attends_once_a_layer_and_sees_the_same(name: str, tmp_path: Path, calls: Any):
    loaded, seen = vlm_loaded.load(save_family(tmp_path, name), "fp32", ()), calls(by_bounds)
    if name not in WINDOWS:
        assert not pack_windows(loaded.model)
        return
    before, apart = features(loaded), seen.count("apart")
    seen.clear()
    assert pack_windows(loaded.model)
    torch.testing.assert_close(features(loaded), before, atol=1e-4, rtol=1e-4)
    assert seen.count("packed") == LAYERS
    decoding = seen.count("apart")  # of the language model
    assert apart - decoding >= LAYERS * (1 if name in ("pixtral", "mistral3") else 4), "a call a picture, or masked"
    assert name != "qwen2_5_vl" or apart - decoding == 15 + 4, "15 windows, and 4 pictures in the layer without windows"
    seen.clear()
    with windows_apart(loaded.model):
        assert torch.equal(features(loaded), before) and "packed" not in seen
    features(loaded)
    assert seen.count("packed") == LAYERS


def across(query: Any, key: Any, value: Any, *bounds: Any, scale: float) -> torch.Tensor:
    """Let patches attend to those of other windows and pictures."""
    rows = [each.transpose(0, 1) for each in (query, key, value)]
    return attend(*rows, scale=scale).transpose(0, 1)


@pytest.mark.parametrize(("kernel", "why"), [(by_bounds, ""), (across, "gave another token"), (None, "not callable")])
def test_a_kernel_that_fails_or_answers_otherwise_than_generate_is_not_used(
    kernel: Any, why: str, tmp_path: Path, calls: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A card")
    loaded, seen = vlm_loaded.load(save_family(tmp_path / "model", "qwen2_5_vl"), "fp32", ()), calls(kernel)
    run_notes.take()
    for _ in range(2):  # the second finds the outcome in the cache
        assert loaded.answerer._trials(Decoder(loaded.model, [], 0)) == ""
        notes = run_notes.take()
        assert (why in notes[0] and "attends window by window" in notes[0]) if why else not notes
        seen.clear()
        features(loaded)
        assert seen.count("packed") == (0 if why else LAYERS)
    unpack_windows(loaded.model)
