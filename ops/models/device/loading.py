"""Load a model once per process, whichever thread calls first, and only onto a device with enough memory."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

from pairmill.ops.models.device.device import device
from pairmill.ops.models.device.failures import is_no_room
from pairmill.ops.models.model_error import UnfitDevice

Loaded = TypeVar("Loaded")
Asked = ParamSpec("Asked")
# Load one model at a time: two at once would need the loading memory of both.
_LOADING = threading.RLock()


def once(load: Callable[Asked, Loaded]) -> Callable[Asked, Loaded]:
    """Cache ``load`` by its arguments for the life of the process; concurrent calls wait for the first."""
    kept: Any = functools.cache(load)

    @functools.wraps(load)
    def loaded(*asked: Asked.args, **named: Asked.kwargs) -> Loaded:
        with _LOADING:
            return kept(*asked, **named)

    return loaded


def placed(model: Any, spec: str, kind: torch.dtype | None = None) -> Any:
    """Move a model to the device, converting its weights to ``kind`` if that is given, and return it.

    Raises UnfitDevice with the remedy if the device has no room: before the move if the model's size shows it.
    """
    to = device()
    if to.type == "cuda":
        free, total = torch.cuda.mem_get_info(to)
        share = torch.cuda.get_per_process_memory_fraction(to)
        if reason := no_room(spec, weight_bytes(model, kind), min(free, int(share * total))):
            raise UnfitDevice(reason)
    try:
        return model.to(device=to, dtype=kind) if kind is not None else model.to(to)
    except Exception as error:
        if not is_no_room(error):
            raise
        raise UnfitDevice(no_room(spec, weight_bytes(model, kind), 0)) from error


def weight_bytes(model: Any, kind: torch.dtype | None) -> int:
    """Return the bytes of a model's parameters and buffers, with floats counted as ``kind`` if that is given."""
    tensors = {id(tensor): tensor for each in (model.parameters(), model.buffers()) for tensor in each}
    return sum(
        tensor.numel() * (kind.itemsize if kind is not None and tensor.is_floating_point() else tensor.element_size())
        for tensor in tensors.values()
    )


def no_room(spec: str, needs: int, free: int) -> str:
    """Return the error message for a model of ``needs`` bytes with ``free`` bytes of a GPU left; '' if it fits."""
    if needs <= free:
        return ""
    return (
        f"model '{spec}' does not fit the GPU: its weights take {needs / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are "
        "free for it. Give it more of a card (--model NAME:gpus=1, or compute.models in Prefect), end what else uses "
        "the card, set precision to bf16, or use a smaller model."
    )
