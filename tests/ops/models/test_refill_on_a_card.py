"""Refilled slots on a simulated card: slots in use, rows decoded at once, and padding of prefill."""

from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.ops.models.generate.batch_part import BatchPart
from pairmill.ops.models.generate.batching import WEIGHTS, prefill_parts, refill_groups
from pairmill.ops.models.generate.refilled_decoding import RefilledDecoder
from tests.ops.models.test_batching import LENGTHS

LIMIT = 128


class Card:
    """A card whose clock counts prefilled tokens: reading the weights takes WEIGHTS, and so does a step of decoding.

    The inputs of a prompt are (its length, the length of its answer). It stands for `Decoder` and for `Buffers`.
    """

    def __init__(self) -> None:
        self.clock = self.prefilled = self.wasted = self.steps = self.used = self.rows = 0

    def prefill(self, inputs: dict[str, Any]) -> Any:
        lengths = inputs["lengths"]
        self.prefilled += (padded := len(lengths) * max(lengths))
        self.wasted += padded - sum(lengths)
        self.clock += WEIGHTS + padded
        empty = torch.empty(len(lengths))
        return SimpleNamespace(mask=torch.empty(len(lengths), max(lengths)), first=empty, answers=inputs["answers"])

    def rows_that_fit(self, rows: int, *_: Any) -> int:
        return rows

    def buffers(self, rows: int, prompt: int, max_tokens: int, like: Any) -> Any:
        self.rows, self.left = rows, torch.zeros(rows, dtype=torch.long)
        self.said = torch.zeros(rows, 1, dtype=torch.long)
        return self

    def begin(self) -> None:
        self.left.zero_()

    def fill(self, slots: torch.Tensor, new: Any, most: int) -> None:
        self.left[slots] = torch.tensor(new.answers) - 1  # the prefill has said one

    def step(self, columns: int) -> None:
        self.steps += 1
        self.clock += WEIGHTS
        self.used += int((self.left > 0).sum())
        self.left.sub_(1).clamp_(0)

    @property
    def done(self) -> torch.Tensor:
        return self.left == 0


def answer_lengths(n: int) -> list[int]:
    """Draw lengths of captions: log-normal, median 55, at most LIMIT."""
    drawn = np.random.default_rng(5).lognormal(np.log(55), 0.5, n)
    return np.clip(drawn.astype(int), 2, LIMIT).tolist()


def refilled(lengths: list[int], answers: list[int], fitted: int) -> Card:
    """Decode all prompts, which are read in portions of eight times the fitted rows."""
    card = Card()
    decoder = RefilledDecoder(card, fitted)
    for start in range(0, len(lengths), 8 * fitted):
        some = list(range(start, min(start + 8 * fitted, len(lengths))))
        for group in refill_groups([lengths[row] for row in some], fitted):
            rows = [some[row] for row in group]
            inputs = {"input_ids": torch.empty(len(rows), max(lengths[row] for row in rows))}
            inputs |= {"lengths": [lengths[row] for row in rows], "answers": [answers[row] for row in rows]}
            decoder.launch([BatchPart(list(range(len(rows))), inputs)], LIMIT, dict)
    decoder.close()
    return card


def in_batches(lengths: list[int], answers: list[int], fitted: int) -> Card:
    """Decode all prompts in batches that end with their longest answer, prefilled in parts."""
    card = Card()
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    for start in range(0, len(order), fitted):
        rows = order[start : start + fitted]
        for part in prefill_parts([lengths[row] for row in rows]):
            card.prefill({"lengths": [lengths[rows[row]] for row in part], "answers": []})
        card.buffers(len(rows), 0, 0, None)
        card.fill(torch.arange(len(rows)), SimpleNamespace(answers=[answers[row] for row in rows]), LIMIT)
        while not bool(card.done.all()):
            card.step(0)
    return card


@pytest.mark.parametrize("fitted", [64, 256])
@pytest.mark.parametrize("name", LENGTHS)
def test_slots_are_used_and_prefill_has_little_padding(name: str, fitted: int):
    rows = 64 * fitted
    lengths = list(chain.from_iterable([LENGTHS[name]] * (rows // 512)))
    answers = answer_lengths(rows)
    card = refilled(lengths, answers, fitted)
    assert card.used == sum(answers) - rows, "every token of every answer is decoded once"
    assert card.used / (card.steps * card.rows) >= 0.9
    assert card.rows >= 0.9 * fitted
    assert card.wasted / card.prefilled <= 0.05
    before = in_batches(lengths, answers, fitted)
    assert before.used / (before.steps * fitted) < 0.5, "batches that end together wait for their longest answer"
    assert card.clock < before.clock
