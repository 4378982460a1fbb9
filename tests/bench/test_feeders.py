"""What the bench of feeders compares are the same arrays, whoever prepares them."""

from functools import partial

import pytest
import torch

from infra.bench.feeder_processes import SLOTS, FeederProcesses
from infra.bench.feeders import KINDS, prepare_for
from tests.worlds.web import photograph


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_process_hands_back_what_a_thread_prepares_whatever_slot_it_lies_in(kind: str):
    pieces = [[photograph(2 * n), photograph(2 * n + 1)] for n in range(2 * SLOTS + 1)]
    found: list[dict[str, torch.Tensor]] = []
    feeders = FeederProcesses(partial(prepare_for, kind), 1)
    try:
        feeders.run(iter(pieces), lambda ready: found.append({name: each.clone() for name, each in ready.items()}))
    finally:
        feeders.close()
    prepare = prepare_for(kind)
    assert len(found) == len(pieces)
    for seen, piece in zip(found, pieces, strict=True):
        expected = prepare(piece)
        assert seen.keys() == expected.keys()
        assert all(torch.equal(seen[name], expected[name]) for name in expected)
