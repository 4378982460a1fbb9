"""Choose the device and number format of a model, and run it reproducibly."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from pairmill.ops.models.model_digest import ModelError
from pairmill.ops.whole.ranking import multiplies_bfloat16

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
# Reason and detail of the fault of a row that has no room on the device by itself.
NO_ROOM = ("out_of_memory", "no room for it alone")
Result = TypeVar("Result")


def device() -> torch.device:
    """Return the first visible CUDA device, else the CPU. A stage shows an actor only the devices that it may use."""
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


def keep_to_share(share: float) -> None:
    """Keep this process to a ``share`` (0 to 1] of its GPU's memory, so that others on the card have theirs."""
    if share < 1 and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(share)


def dtype(precision: str) -> torch.dtype:
    """Return 'fp32' or 'bf16' as torch's type; warn on a CPU without bf16 instructions, where it is slow.

    Precision is part of a score's identity and so never replaced: raises ModelError where the GPU lacks it.
    """
    if precision not in DTYPES:
        raise ModelError(f"precision '{precision}': write one of {', '.join(DTYPES)}")
    if precision == "bf16" and torch.cuda.is_available() and not torch.cuda.is_bf16_supported(False):
        raise ModelError(f"precision 'bf16': {torch.cuda.get_device_name()} has no bfloat16; set precision to fp32")
    if precision == "bf16" and device().type == "cpu" and not multiplies_bfloat16():
        # ViT-B-32 on one core of a Xeon without them: 2.7 pictures a second, 8.3 in fp32.
        warnings.warn(
            "precision 'bf16': this CPU has no instructions for it, fp32 is some three times as fast here. "
            "Set precision to fp32 (its scores are others), or run this stage elsewhere.",
            stacklevel=2,
        )
    return DTYPES[precision]


@contextmanager
def exact_inference() -> Iterator[None]:
    """Disable gradients, and TF32 and timing-chosen algorithms in convolutions, which would change fp32 by 1e-3."""
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def run_in_parts(run: Callable[[Any], Result], rows: Any) -> list[tuple[range, Result | None]]:
    """Run ``rows`` (a tensor, a list or a range) as one batch, or in halves where the GPU's memory runs out.

    Returns the parts in order: the places of each among the rows, and what ``run`` returned of it; None for a single
    row that has no room by itself.
    """

    def parts(at: range) -> list[tuple[range, Result | None]]:
        try:
            return [(at, run(rows[at.start : at.stop]))]
        except torch.cuda.OutOfMemoryError:
            pass  # outside of the handler the failed batch's tensors are free
        torch.cuda.empty_cache()
        half = len(at) // 2
        return parts(at[:half]) + parts(at[half:]) if half else [(at, None)]

    return parts(range(len(rows)))


def text_batches(lengths: list[int], batch_size: int) -> list[list[int]]:
    """Group row numbers into batches of like length, longest first: little is padded, and peak memory comes at once.

    Ties stand in row order: the batches are a function of the lengths alone.
    """
    order = sorted(range(len(lengths)), key=lambda row: (-lengths[row], row))
    return [order[start : start + batch_size] for start in range(0, len(order), batch_size)]


def token_batches(lengths: list[int], tokens: int) -> list[list[int]]:
    """Group row numbers into batches of like length, longest first, of at most ``tokens`` tokens with their padding.

    No row is padded by more than a third of its length: 24 batches more, at most, of a thousand tokens. A row longer
    than ``tokens`` stands alone, one of no length in none. Ties stand in row order, as in `text_batches`.
    """
    order = sorted((row for row, length in enumerate(lengths) if length), key=lambda row: (-lengths[row], row))
    batches: list[list[int]] = []
    longest = 0  # of the batch: each of it is padded to this
    for row in order:
        if not batches or (len(batches[-1]) + 1) * longest > tokens or 4 * lengths[row] < 3 * longest:
            batches.append([])
            longest = lengths[row]
        batches[-1].append(row)
    return batches
