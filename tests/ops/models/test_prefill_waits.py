"""The prefill on fake CUDA tensors: how often it waits for the device, which then waits for the host."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pairmill.ops.models.generate.cuda_graph_decoding import Decoder
from pairmill.ops.models.generate.quick_parts import share_keys, whole_pictures
from pairmill.ops.models.vision_language import vlm_loaded
from tests.worlds.tiny_families import save_family


class Waits(TorchDispatchMode):
    """Name each operation that waits for the fake device, and let its result be plausible: all true, and 1.

    What is on the host stays real.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, how = func.overloadpacket.__name__, kwargs or {}
        tensors = [each for each in tree_leaves((args, how)) if torch.is_tensor(each)]
        if tensors and not any(isinstance(each, FakeTensor) for each in tensors) and "cuda" not in repr((args, how)):
            with unset_fake_temporarily():
                return func(*args, **how)
        if name == "_local_scalar_dense":
            self.found.append(name)
            return args[0].dtype == torch.bool or 1
        if name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1]):
            self.found.append("index by a mask")
            numbers = [torch.zeros(each.numel(), dtype=torch.long, device="cuda") for each in args[1]]
            return func(args[0], numbers)
        return func(*args, **how)


def to_fake_card(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a model's weights be fake CUDA tensors."""
    for part in model.modules():
        for held in (part._parameters, part._buffers):
            held |= {name: torch.empty(each.shape, device="cuda") for name, each in held.items() if each is not None}
        if hasattr(type(part), "device"):
            monkeypatch.setattr(type(part), "device", torch.device("cuda"))


@pytest.mark.parametrize(
    ("family", "before", "after"),
    [("smolvlm", 6, 0), pytest.param("idefics3", 6, 1, marks=pytest.mark.slow)],
)
def test_a_prefill_of_whole_pictures_does_not_wait_for_the_device(
    family: str, before: int, after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    torch.set_num_threads(1)
    loaded = vlm_loaded.load(save_family(tmp_path, family), "fp32", ())
    loaded.own_processor().image_processor.size = {"longest_edge": 32}  # one tile
    given, model, decoder = loaded.example(), loaded.model, object.__new__(Decoder)
    assert "pixel_attention_mask" not in given
    share_keys(model)
    decoder.model, decoder.pad, decoder.penalty = model, 0, 1.0

    def place(inputs: dict[str, Any]) -> dict[str, Any]:
        return {name: torch.empty(each.shape, dtype=each.dtype, device="cuda") for name, each in inputs.items()}

    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        to_fake_card(model, monkeypatch)
        for decoder.by_lengths, waits in ((False, before), (True, after)):
            with Waits() as counted:
                decoder.prefill(given, place)
            assert len(counted.found) == waits, counted.found


@pytest.mark.parametrize("family", ["smolvlm", pytest.param("idefics3", marks=pytest.mark.slow)])
def test_whole_pictures_give_the_features_that_transformers_finds(family: str, tmp_path: Path):
    loaded = vlm_loaded.load(save_family(tmp_path, family), "fp32", ())
    split = loaded.example()  # into unlike numbers of tiles
    loaded.own_processor().image_processor.size = {"longest_edge": 32}
    for inputs, whole in ((loaded.example(), True), (split, False)):
        with torch.inference_mode():
            before = loaded.model(**loaded.answerer.placed(inputs)).logits
            with whole_pictures(loaded.model, inputs):
                assert ("get_image_features" in vars(loaded.model.model)) == whole
                assert torch.equal(loaded.model(**loaded.answerer.placed(inputs)).logits, before)
        assert "get_image_features" not in vars(loaded.model.model)
