"""What an error of a device means, in the words of each library, and what a process then tells its run."""

from typing import Any

import pytest
import torch

from pairmill.ops.models.device import device as devices
from pairmill.ops.models.device import run_notes
from pairmill.ops.models.device.failures import is_broken, is_no_room
from pairmill.ops.models.device.row_batches import run_in_parts
from pairmill.ops.models.generate.batching import BatchPart
from pairmill.ops.models.generate.greedy_answers import Answerer, RefilledSlots
from pairmill.ops.models.model_error import ModelError

NO_ROOM = [
    torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported asynchronously"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
]
BROKEN = [
    RuntimeError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR"),
    RuntimeError("HIP error: unspecified launch failure"),
]
NEITHER = [
    RuntimeError("cuDNN error: CUDNN_STATUS_NOT_SUPPORTED"),
    RuntimeError("CUDA error: operation not permitted when stream is capturing"),
    RuntimeError("shapes cannot be multiplied"),
    ValueError("CUDA error: as a text"),
]


def by_text(error: Exception) -> str:
    return str(error)[:60]


@pytest.mark.parametrize("error", NO_ROOM, ids=by_text)
def test_a_full_card_is_no_room_in_each_librarys_words(error: Exception):
    assert is_no_room(error) and not is_broken(error)

    def run(rows: list[int]) -> list[int]:
        if len(rows) > 1:
            raise error
        return rows

    assert run_in_parts(run, [1, 2]) == [(range(1), [1]), (range(1, 2), [2])]


@pytest.mark.parametrize("error", BROKEN, ids=by_text)
def test_a_lost_context_is_broken_in_each_librarys_words(error: Exception):
    assert is_broken(error) and not is_no_room(error)


@pytest.mark.parametrize("error", NEITHER, ids=by_text)
def test_any_other_error_is_neither(error: Exception):
    assert not is_broken(error) and not is_no_room(error)
    with pytest.raises(type(error)):
        run_in_parts(lambda rows: (_ for _ in ()).throw(error), [1, 2])


def test_a_capture_that_memory_ended_is_no_room():
    capture = RuntimeError("CUDA error: operation failed due to a previous error during capture")
    assert not is_no_room(capture) and not is_broken(capture)
    capture.__context__ = NO_ROOM[0]
    assert is_no_room(capture)


def test_a_gpu_that_was_given_and_that_torch_cannot_use_is_an_error_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    """The worker's model would run on the CPU, for days, without a word."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert devices.device().type == "cpu"
    monkeypatch.setattr(devices, "_HAS_GPU", False)
    devices._why_unusable.cache_clear()
    devices.keep_to_share(1.0)
    with pytest.raises(ModelError, match=r"torch .* cannot use it: .*--model NAME:gpus=0"):
        devices.device()
    devices._why_unusable.cache_clear()


class Decoder:
    """A captured decoder that fails with each of ``errors`` in turn."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.releases = list(errors), 0

    def generate(self, *_: object) -> torch.Tensor:
        raise self.errors.pop(0)

    def release(self) -> None:
        self.releases += 1


class Model:
    """A model of which only transformers' own loop is asked."""


def answerer(decoder: Decoder, monkeypatch: pytest.MonkeyPatch) -> Answerer:
    made: Any = object.__new__(Answerer)
    made.model, made.decoder, made.pad, made.slots = Model(), decoder, 0, RefilledSlots(made)
    monkeypatch.setattr(made, "_step_by_step", lambda inputs, most: torch.zeros(1, most), raising=False)
    return made


PARTS = [BatchPart([0], {})]


def test_a_capture_that_fails_is_a_note_of_the_run_and_a_full_card_is_not(monkeypatch: pytest.MonkeyPatch):
    run_notes.take()
    made = answerer(decoder := Decoder(NO_ROOM[1], RuntimeError("cannot capture this\nat length")), monkeypatch)
    with pytest.raises(RuntimeError, match="out of memory"):
        made.generate(PARTS, 3, dict)
    assert decoder.releases == 1 and run_notes.take() == ()
    assert made.generate(PARTS, 3, dict).shape == (1, 3) and made.decoder is None
    (note,) = run_notes.take()
    assert note.startswith("Model: answers are generated step by step") and note.endswith(": cannot capture this")


def test_a_broken_device_is_no_reason_to_go_on_slower(monkeypatch: pytest.MonkeyPatch):
    made = answerer(Decoder(BROKEN[0]), monkeypatch)
    with pytest.raises(RuntimeError, match="assert"):
        made.generate(PARTS, 3, dict)
    assert run_notes.take() == ()
