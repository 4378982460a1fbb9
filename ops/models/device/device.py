"""Choose the device and number format of a model, load it once per process, and run it reproducibly."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

import torch

import pairmill.ops.models.device.quick_imports  # noqa: F401  before torchvision, timm and transformers
from pairmill.ops.models.device.failures import first_line, is_no_room
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.model_error import ModelError, UnfitDevice
from pairmill.ops.whole.ranking import multiplies_bfloat16

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
Loaded = TypeVar("Loaded")
Asked = ParamSpec("Asked")
# Load one model at a time: two at once would need the loading memory of both.
_LOADING = threading.RLock()
# Whether the run gave this process a GPU. It stays so for the process's life, as the devices that it sees do.
_HAS_GPU = False


def device() -> torch.device:
    """Return the first visible CUDA device, or the CPU without one.

    A stage restricts which devices its processes see. Raises UnfitDevice if torch cannot use a GPU that the process
    sees: a user must ask for a run of days on CPUs.
    """
    if (_HAS_GPU or torch.cuda.is_available()) and (why := _why_unusable()):
        raise UnfitDevice(
            f"there is a GPU, and torch {torch.__version__} cannot use it: {why}. Update its driver, install the torch "
            "that is built for it, or end what fills it. To run models on the CPUs, set CUDA_VISIBLE_DEVICES to "
            "nothing, or --model NAME:gpus=0 (compute.models in Prefect)."
        )
    return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


@functools.cache
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
    """Disable gradients, TF32 in convolutions and timing-chosen algorithms in the `with` block, for exact results.

    The last two would change fp32 results by 1e-3.
    """
    with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def once(load: Callable[Asked, Loaded]) -> Callable[Asked, Loaded]:
    """Return ``load`` with its results cached for the life of the process; concurrent calls wait for the first."""
    kept: Any = functools.cache(load)

    @functools.wraps(load)
    def loaded(*asked: Asked.args, **named: Asked.kwargs) -> Loaded:
        with _LOADING:
            return kept(*asked, **named)

    return loaded


def load_transformers(folder: str, model_class: str, reader_class: str, kind: torch.dtype) -> tuple[Any, Any, set[str]]:
    """Load a transformers model, with weights as ``kind``, and its tokenizer or processor, onto the CPU.

    Returns (model, tokenizer or processor, names of weights that the checkpoint lacks). Code from the model's
    repository never runs, nor pickled code of a checkpoint. Raises any error of transformers: for a config of another
    kind of model, a missing reader, damaged weights.
    """
    from transformers.utils.logging import disable_progress_bar

    transformers = import_module("transformers")  # a plain import has pyright read all of its 2,700 modules, for 16 s
    disable_progress_bar()  # one progress bar per worker would overwrite the run's own
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    reader = getattr(transformers, reader_class).from_pretrained(folder, **safe)
    model, report = getattr(transformers, model_class).from_pretrained(
        folder, dtype=kind, weights_only=True, output_loading_info=True, **safe
    )
    return model.eval(), reader, report["missing_keys"]


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
    """Return the size in bytes of a model's parameters and buffers, with floats counted as ``kind`` if it is given."""
    tensors = {id(tensor): tensor for each in (model.parameters(), model.buffers()) for tensor in each}
    return sum(
        tensor.numel() * (kind.itemsize if kind is not None and tensor.is_floating_point() else tensor.element_size())
        for tensor in tensors.values()
    )


def no_room(spec: str, needs: int, free: int) -> str:
    """Return the error message for a model of ``needs`` bytes on a GPU with ``free`` free bytes; '' if it fits."""
    if needs <= free:
        return ""
    return (
        f"model '{spec}' does not fit the GPU: its weights take {needs / 1e9:,.1f} GB, and {free / 1e9:,.1f} GB are "
        "free for it. Give it more of a card (--model NAME:gpus=1, or compute.models in Prefect), end what else uses "
        "the card, set precision to bf16, or use a smaller model."
    )
