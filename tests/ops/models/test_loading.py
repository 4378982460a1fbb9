"""Loading: once a process whichever thread asks, and refused with the remedy where there is no room."""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from pairmill.ops.models.device.device import no_room, once, placed, weight_bytes
from pairmill.ops.models.device.row_batches import run_in_parts
from pairmill.ops.models.model_digest import ModelError


def test_threads_that_ask_at_once_get_one_model():
    loads: list[str] = []

    @once
    def load(spec: str, precision: str) -> object:
        loads.append(spec)
        time.sleep(0.05)
        return object()

    with ThreadPoolExecutor(8) as several:
        found = set(several.map(lambda n: load(f"model-{n % 2}", "fp32"), range(16)))
    assert sorted(loads) == ["model-0", "model-1"] and len(found) == 2


def test_what_does_not_load_is_tried_again_by_the_next():
    tries: list[int] = []

    @once
    def load(spec: str, precision: str) -> int:
        tries.append(1)
        if len(tries) == 1:
            raise ModelError("the weights are not there yet")
        return len(tries)

    with pytest.raises(ModelError):
        load("a", "fp32")
    assert load("a", "fp32") == 2


def test_shared_weights_count_once_and_as_what_they_will_be():
    model = torch.nn.Sequential(torch.nn.Linear(100, 50, bias=False), torch.nn.Linear(100, 50, bias=False))
    model[1].weight = model[0].weight
    model.register_buffer("places", torch.zeros(10, dtype=torch.long))
    assert weight_bytes(model, None) == 5_000 * 4 + 80
    assert weight_bytes(model, torch.bfloat16) == 5_000 * 2 + 80


def test_a_model_larger_than_its_part_of_a_card_is_refused_in_a_line_with_the_remedy():
    assert no_room("hf:big", 10 * 10**9, 10 * 10**9) == ""
    said = no_room("hf:big", 34 * 10**9, 20 * 10**9)
    assert "'hf:big' does not fit the GPU: its weights take 34.0 GB, and 20.0 GB are free" in said and "gpus=1" in said


def test_memory_that_runs_out_while_a_model_is_moved_is_the_models_error():
    class Full(torch.nn.Linear):
        def to(self, *args: object, **options: object) -> "Full":
            raise torch.cuda.OutOfMemoryError("no room")

    with pytest.raises(ModelError, match="does not fit"):
        placed(Full(2, 2), "hf:big")


def test_a_batch_without_room_is_run_in_halves_and_a_row_without_room_has_nothing():
    sizes: list[int] = []

    def run(rows: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows))
        if len(rows) > 3 or 99 in rows:
            raise torch.cuda.OutOfMemoryError("no room")
        return rows * 2

    places, found = zip(*run_in_parts(run, torch.arange(10)), strict=True)
    assert places == (range(2), range(2, 5), range(5, 7), range(7, 10))
    assert torch.equal(torch.cat(found), torch.arange(10) * 2)
    assert sizes == [10, 5, 2, 3, 5, 2, 3]
    (_, first), (place, none), (_, last) = run_in_parts(run, torch.tensor([1, 99, 2]))
    assert (first.tolist(), place, none, last.tolist()) == ([2], range(1, 2), None, [4])
