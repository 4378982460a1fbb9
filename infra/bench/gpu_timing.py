"""Time work on a device, measure a GPU's ceilings, and compute a model's bounds from these ceilings."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from infra.bench.gpu_shapes import Vlm

ROUNDS = 3


@dataclass(frozen=True)
class Ceilings:
    """Best rates of a GPU: products in bf16 and fp32 (operations/s), copies (bytes read and written, a second)."""

    bf16: float
    fp32: float
    bandwidth: float

    def note(self) -> str:
        """Describe the ceilings in one phrase."""
        return f"at {self.bf16 / 1e12:.3g} TFLOP/s and {self.bandwidth / 1e12:.3g} TB/s"


def device() -> torch.device:
    """Return the GPU, or the CPU if there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def wait() -> None:
    """Wait until the GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def seconds(work: Callable[[], object]) -> float:
    """Time ``work`` once, until the device is done."""
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


def median(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Return the median seconds of ``work`` over ``rounds``."""
    return statistics.median(seconds(work) for _ in range(rounds))


def ceilings(size: str) -> Ceilings:
    """Measure the ceilings with random numbers: zeros multiply faster (894 against 788 TFLOP/s on an H200)."""
    side, copied = (8192, 4 << 30) if size == "real" else (256, 1 << 24)
    return Ceilings(_products(side, torch.bfloat16), _products(side // 2, torch.float32), _copies(copied))


def _products(side: int, kind: torch.dtype, repeats: int = 10) -> float:
    """Return the operations a second of square matrix products."""
    left, right = (torch.randn(side, side, device=device()).to(kind) for _ in range(2))

    def work() -> None:
        for _ in range(repeats):
            torch.mm(left, right)

    work()  # loads cuBLAS
    return repeats * 2.0 * side**3 / median(work)


def _copies(n_bytes: int, repeats: int = 10) -> float:
    """Return the bytes read and written a second by copies on the device."""
    source = torch.randint(0, 255, (n_bytes,), dtype=torch.uint8, device=device())
    target = torch.empty_like(source)

    def work() -> None:
        for _ in range(repeats):
            target.copy_(source)

    work()
    return repeats * 2.0 * n_bytes / median(work)


def prefill_bound(shape: Vlm, rows: int, card: Ceilings) -> float:
    """Return the least seconds of ``rows`` pictures until their first tokens."""
    return rows * shape.prefill_flops() / card.bf16


def decode_bound(shape: Vlm, rows: int, card: Ceilings) -> float:
    """Return the least seconds of the other tokens of ``rows`` answers.

    Each step takes the larger of its compute time and its reading time.
    """
    return sum(
        max(
            rows * shape.decode_flops(context) / card.bf16,
            shape.decode_bytes(rows, context) / card.bandwidth,
        )
        for context in range(shape.context + 1, shape.context + shape.answer)
    )
