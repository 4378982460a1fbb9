"""Refilled slots behind the engine, on a simulated card: slots in use, and padding of prefill."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.generate.batching import WEIGHTS, BatchPart, prefill_parts, refill_groups
from pairmill.ops.models.generate.refilled_decoding import RefilledDecoder
from tests.ops.models.test_batching import LENGTHS

LIMIT = 128
# Threads that prepare; items in flight of a model process (tasks.run.place.resources.LANES); items of 512 rows.
FEEDERS, LANES, ITEMS = 8, 3, 32


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


class Stages:
    """Engine stages that decode pieces of (item, lengths, answers) in the slots of a card slower than its feeders.

    Before each step it waits until all pieces are prepared that the engine and LANES items in flight let in.
    """

    def __init__(self, card: Card, slots: int) -> None:
        self.card, self.decoder, self.changed = card, RefilledDecoder(card, slots), threading.Condition()
        self.left: dict[int, int] = {}  # pieces of each item that are not fetched
        self.read = self.prepared = self.launched = 0
        self.waiting: tuple[int, int] = (0, 0)  # the card's steps and used slots at the last launch
        self.step, card.step = card.step, self.step_when_fed

    def begin(self, item: int, pieces: int) -> None:
        with self.changed:
            self.left[item] = pieces
            self.read += pieces
            self.changed.notify()

    def prepare(self, piece: Any) -> Any:
        with self.changed:
            self.prepared += 1
            self.changed.notify()
        return piece

    def is_fed(self) -> bool:
        begun = min(ITEMS, LANES + list(self.left.values()).count(0))
        return len(self.left) == begun and self.prepared >= min(self.read, self.launched + 2 * FEEDERS + 2)

    def step_when_fed(self, columns: int) -> None:
        with self.changed:
            assert self.changed.wait_for(self.is_fed, 60)
        self.step(columns)

    def infer(self, piece: Any) -> Any:
        item, lengths, answers = piece
        inputs = {"input_ids": torch.empty(len(lengths), max(lengths)), "lengths": lengths, "answers": answers}
        running = self.decoder.launch([BatchPart(list(range(len(lengths))), inputs)], LIMIT, dict)
        self.launched += 1
        self.waiting = (self.card.steps, self.card.used)
        return item, running

    def stepwise(self, running: Any) -> Any:
        return running[1]

    def fetch(self, running: Any) -> None:
        while not running[1].has_ended:
            running[1].advance()
        self.left[running[0]] -= 1


def refilled(lengths: list[int], answers: list[int], slots: int) -> Stages:
    """Decode items of 512 rows through an engine, as a run does, LANES at a time."""
    stages = Stages(Card(), slots)
    engine = Engine(stages, FEEDERS)

    def run(item: int) -> None:
        rows = range(512 * item, 512 * (item + 1))
        groups = refill_groups([lengths[row] for row in rows], slots)
        stages.begin(item, len(groups))
        engine.run([(item, *([each[rows[row]] for row in group] for each in (lengths, answers))) for group in groups])

    with ThreadPoolExecutor(LANES) as lanes:
        list(lanes.map(run, range(ITEMS)))
    engine.close()
    return stages


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


@pytest.mark.parametrize(("name", "slots"), [("fuser", 512), ("one tile", 256), ("qwen", 256), ("internvl", 256)])
def test_slots_are_used_and_prefill_has_little_padding(name: str, slots: int):
    lengths, answers = LENGTHS[name] * ITEMS, answer_lengths(512 * ITEMS)
    stages = refilled(lengths, answers, slots)
    card, (steps, used) = stages.card, stages.waiting
    assert card.used == sum(answers) - len(answers), "every token of every answer is decoded once"
    assert used / (steps * slots) >= 0.92, "while prompts wait"
    assert card.used / (card.steps * slots) >= 0.88
    assert card.wasted / card.prefilled <= 0.05
    before = in_batches(lengths, answers, slots)
    assert before.used / (before.steps * slots) < 0.5, "batches that end together wait for their longest answer"
    assert card.clock < before.clock
