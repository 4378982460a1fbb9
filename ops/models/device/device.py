"""Choose the device and number format of a model, and run it reproducibly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import torch

from pairmill.ops.models.device.failures import first_line, is_no_room
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.model_error import ModelError, UnfitDevice
from pairmill.ops.whole.ranking import multiplies_bfloat16

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Quarantine reason and detail for a row that does not fit the device on its own.
NO_ROOM = ("out_of_memory", "no room for it alone")
Result = TypeVar("Result")
# Whether the run gave this process a GPU. It stays so for the process's life, as the devices that it sees do.
_HAS_GPU = False


def device() -> torch.device:
    """Return the first visible CUDA device, else the CPU. A stage restricts which devices its actors see.

    Raises UnfitDevice if torch cannot use the GPU that this process was given or sees: a run of days on the CPUs must
    be asked for.
    """
    if (_HAS_GPU or torch.cuda.is_available()) and (why := _why_unusable()):
        raise UnfitDevice(
            f"there is a GPU, and torch {torch.__version__} cannot use it: {why}. Update its driver, install the torch "
            "that is built for it, or end what fills it. To run models on the CPUs, set CUDA_VISIBLE_DEVICES to "
            "nothing, or --model NAME:gpus=0 (compute.models in Prefect)."
        )
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@cache
def _why_unusable() -> str:
    """Return why torch cannot use the first visible GPU, by a trial addition on it; '' if it can."""
    try:
        torch.cuda.init()
        torch.ones(1, device="cuda").add_(1).item()  # fails where torch has no kernels for an old or too new card
    except Exception as error:
        return first_line(error).rstrip(".")
    return ""


def keep_to_share(share: float) -> None:
    """Limit this process to a ``share`` (0 to 1] of its GPU's memory; other processes on the card use the rest."""
    global _HAS_GPU
    _HAS_GPU = True
    if share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


def dtype(precision: str) -> torch.dtype:
    """Return the torch type of 'fp32' or 'bf16'; note a CPU without bf16 instructions, where bf16 is slow.

    Precision is part of a score's identity, so it is never replaced: raises UnfitDevice if the GPU has no bfloat16.
    """
    if precision not in DTYPES:
        raise ModelError(f"precision '{precision}': write one of {', '.join(DTYPES)}")
    if precision == "bf16" and torch.cuda.is_available() and not torch.cuda.is_bf16_supported(False):
        raise UnfitDevice(f"precision 'bf16': {torch.cuda.get_device_name()} has no bfloat16; set precision to fp32")
    if precision == "bf16" and device().type == "cpu" and not multiplies_bfloat16():
        # ViT-B-32 on one core of a Xeon without bf16 instructions: 2.7 images a second, 8.3 in fp32.
        note(
            "precision 'bf16': this CPU has no instructions for it, fp32 is some three times as fast here. "
            "Set precision to fp32 (its scores are others), or run this stage elsewhere."
        )
    return DTYPES[precision]


@contextmanager
def exact_inference() -> Iterator[None]:
    """Disable gradients, TF32 in convolutions, and timing-chosen algorithms; the last two would change fp32 by 1e-3."""
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def run_in_parts(run: Callable[[Any], Result], rows: Any) -> list[tuple[range, Result | None]]:
    """Run ``rows`` (a tensor, a list or a range) as one batch; split it in halves if the GPU's memory runs out.

    Returns:
        The parts in order: the row indexes of each, and the result of ``run``; None for a single row that does not fit.
    """

    def parts(at: range) -> list[tuple[range, Result | None]]:
        try:
            return [(at, run(rows[at.start : at.stop]))]
        except Exception as error:
            if not is_no_room(error):
                raise
            # tensors of the failed batch are freed only outside of the handler
        torch.cuda.empty_cache()
        half = len(at) // 2
        return parts(at[:half]) + parts(at[half:]) if half else [(at, None)]

    return parts(range(len(rows)))


def text_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of similar length, longest first: little padding, and peak memory at the start.

    Ties keep row order, so the batches depend on the lengths alone.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def token_batches(lengths: list[int], tokens: int) -> list[list[int]]:
    """Group row numbers into batches of similar length, longest first, of at most ``tokens`` tokens including padding.

    A row is padded by at most a third of its length, which costs at most 24 more batches for lengths up to 1,000
    tokens. A row longer than ``tokens`` is a batch of its own; a row of length 0 is in no batch. Ties keep row order,
    as in `text_batches`.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    longest = 0  # of the current batch: its rows are padded to this length
    for row in order:
        if not batches or (len(batches[-1]) + 1) * longest > tokens or 4 * lengths[row] < 3 * longest:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches
