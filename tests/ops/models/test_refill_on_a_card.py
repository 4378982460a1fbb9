"""Refilled slots behind the engine, on a simulated card: slots in use, columns read, and padding of prefill."""

from types import SimpleNamespace

import pytest
import torch

from infra.bench.refill import ITEMS, LENGTHS, LIMIT, SLOTS, Card, answer_lengths, refilled
from pairmill.ops.models.generate.batching import prefill_parts


def in_batches(lengths: list[int], answers: list[int], fitted: int) -> Card:
    """Decode all prompts in batches that end with their longest answer, prefilled in parts."""
    card = Card()
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for start in range(0, len(order), fitted):
        rows = order[start : start + fitted]
        for part in prefill_parts([lengths[row] for row in rows]):
            card.prefill({"lengths": [lengths[rows[row]] for row in part], "answers": []})
        card.buffers(len(rows), 0, 0, None)
        begun = SimpleNamespace(lengths=[lengths[row] for row in rows], answers=[answers[row] for row in rows])
        card.fill(torch.arange(len(rows)), begun, LIMIT)
        while not bool(card.done.all()):
            card.step(0)
    return card


@pytest.mark.parametrize(
    ("name", "slots"),
    [pytest.param(*each, marks=() if each[0] == "fuser" else pytest.mark.slow) for each in SLOTS.items()],
)
def test_slots_are_used_and_prefill_has_little_padding(name: str, slots: int):
    lengths, answers = LENGTHS[name] * ITEMS, answer_lengths(512 * ITEMS)
    stages = refilled(lengths, answers, slots)
    card, (steps, used) = stages.card, stages.waiting
    assert card.used == sum(answers) - len(answers), "every token of every answer is decoded once"
    assert used / (steps * slots) >= 0.92, "while prompts wait"
    assert card.used / (card.steps * slots) >= 0.88
    assert card.wasted / card.prefilled <= 0.05
    assert card.needed <= card.by_lengths <= 1.05 * card.needed
    assert 1.5 * card.needed <= card.by_windows <= 3 * card.needed, "as a decoder without lengths reads"
    before = in_batches(lengths, answers, slots)
    assert before.used / (before.steps * slots) < 0.5, "batches that end together wait for their longest answer"
    assert card.clock < before.clock
