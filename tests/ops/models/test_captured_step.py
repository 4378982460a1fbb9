"""The captured step on fake CUDA tensors: nothing in it waits for the device or copies from the host.

A CUDA graph cannot hold such an operation, and this test needs no GPU to find one.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pairmill.ops.models.generate.cuda_graph_decoding import Buffers, Decoder, Prefilled
from pairmill.ops.models.generate.quick_parts import share_keys, takes_lengths
from pairmill.ops.models.vision_language import vlm_loaded
from tests.ops.models.test_families import QUICK, STEP_BY_STEP
from tests.worlds.tiny_families import FAMILIES, save_family

CAPTURED = [name for name in FAMILIES if name not in STEP_BY_STEP]
FAMILY = [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in CAPTURED]
# Operations whose result the host reads. Those whose size depends on values raise on fake tensors by themselves.
WAITS = ("_local_scalar_dense", "is_nonzero", "equal")
ROWS, LENGTH = 4, 64


class Waits(TorchDispatchMode):
    """Name each operation that waits for the device, or that copies between it and the host."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen.add(name)
        if name in WAITS:
            self.found.append(name)
            return 0
        made = func(*args, **(kwargs or {}))
        tensors = [each for each in tree_leaves((args, kwargs, made)) if torch.is_tensor(each)]
        if len({each.device.type for each in tensors}) > 1:
            self.found.append(name)
        return made


class OnCard:
    """A model whose weights are fake CUDA tensors."""

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.dtype = model, model.config, model.dtype
        named = (*model.named_parameters(), *model.named_buffers())
        self.weights = {name: torch.empty(each.shape, dtype=each.dtype, device="cuda") for name, each in named}

    def __call__(self, **inputs: Any) -> Any:
        return functional_call(self.model, self.weights, (), inputs)


def prefilled(loaded: Any) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Prefill four rows on the CPU; return the shapes of their positions, and of each layer's keys in the buffers."""
    with torch.inference_mode():
        new = Decoder(loaded.model, [2], 0).prefill(loaded.answerer.placed(loaded.example()))
    shapes = [(ROWS, layer.keys.shape[1], LENGTH, layer.keys.shape[3]) for layer in new.layers]
    return tuple(new.last.shape), shapes


@contextmanager
def buffers_on_a_fake_card(spec: str, monkeypatch: pytest.MonkeyPatch, by_lengths: bool = False) -> Iterator[Buffers]:
    """Yield the buffers of four rows as fake CUDA tensors, with steps that are not captured."""
    torch.set_num_threads(1)
    loaded = vlm_loaded.load(spec, "fp32", ())
    share_keys(loaded.model)
    shape, layers = prefilled(loaded)
    monkeypatch.setattr(Buffers, "_captured", lambda self, window: None)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        decoder: Any = object.__new__(Decoder)
        decoder.model, decoder.pad, decoder.penalty = OnCard(loaded.model), 0, 1.0
        decoder.by_lengths = by_lengths and takes_lengths(loaded.model)
        decoder.ends = torch.zeros(1, dtype=torch.long, device="cuda")
        decoder.flat = [tuple(torch.empty(math.prod(each), device="cuda") for _ in range(2)) for each in layers]
        empty = [SimpleNamespace(keys=torch.empty(each), values=torch.empty(each)) for each in layers]
        ids = torch.zeros(shape, dtype=torch.long, device="cuda")
        yield Buffers(decoder, ROWS, LENGTH, 16, Prefilled(ids, ids, ids, None, ids, ids, empty, None))


@pytest.mark.parametrize("family", FAMILY)
def test_a_captured_step_neither_waits_for_the_device_nor_copies_from_the_host(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    spec = save_family(tmp_path, family)
    for by_lengths in (False, True):
        with buffers_on_a_fake_card(spec, monkeypatch, by_lengths) as buffers, Waits() as waits:
            buffers.step(40)
        assert waits.found == []
        assert ("_varlen_attn" in waits.seen) == by_lengths


def test_a_step_that_waits_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with buffers_on_a_fake_card(save_family(tmp_path, "llava"), monkeypatch) as buffers, Waits() as waits:
        buffers.done.cpu()
        bool(buffers.done.all())
        with pytest.raises(DynamicOutputShapeException):
            _ = buffers.said[buffers.done]
    assert waits.found == ["_to_copy", "_local_scalar_dense"]
