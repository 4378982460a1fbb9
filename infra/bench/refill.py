"""Simulate refilled slots on a card that only counts: slots in use, columns of keys that are read, padding of prefill.

Run as ``python -m infra.bench.refill``, some seconds. The engine, the grouping and the refilling are the real ones.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from infra.bench.gpu_families import SHAPES
from infra.bench.gpu_refill import FUSER
from infra.bench.measure import Row, finish, parser
from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.generate.batching import WEIGHTS, BatchPart, refill_groups
from pairmill.ops.models.generate.cuda_graph_decoding import window_of
from pairmill.ops.models.generate.refilled_decoding import RefilledDecoder

RNG = np.random.default_rng(3)
QWEN = [
    40 + round(448 * ratio / 28) * round(448 / 28) for ratio in np.exp(RNG.uniform(0, np.log(3), 512))
]  # 448 pixels by up to 3 : 1, a token for 28 x 28
LENGTHS = {
    "fuser": np.round(np.exp(RNG.normal(np.log(150), 0.35, 512))).astype(int).tolist(),
    "qwen": QWEN,
    "internvl": [40 + 256 * tiles for tiles in RNG.choice([1, 3, 4, 5, 7, 9, 10, 13], 512)],
    "one tile": [128] * 512,
}
# An H200's bytes a second: torch's flash kernel reads at .8 of a copy's rate, its kernel for masks at .5 (cost model).
FLASH, MASKED = 0.8 * 4.3e12, 0.5 * 4.3e12
SLOTS = {"fuser": 512, "one tile": 256, "qwen": 256, "internvl": 256}
LIMIT = 128
# Threads that prepare; items in flight of a model process (tasks.run.place.resources.LANES); items of 512 rows.
FEEDERS, LANES, ITEMS = 8, 3, 32


class Card:
    """A card whose clock counts prefilled tokens: reading the weights takes WEIGHTS, and so does a step of decoding.

    The inputs of a prompt are (its length, the length of its answer). It stands for `Decoder` and for `Buffers`. It
    counts the columns of keys that the steps need, read by lengths, and read by windows, those of the longest row.
    """

    def __init__(self) -> None:
        self.clock = self.prefilled = self.wasted = self.steps = self.used = self.rows = 0
        self.needed = self.by_lengths = self.by_windows = 0

    def prefill(self, inputs: dict[str, Any], place: Any = None) -> Any:
        """Prefill a group, padded."""
        lengths = inputs["lengths"]
        self.prefilled += (padded := len(lengths) * max(lengths))
        self.wasted += padded - sum(lengths)
        self.clock += WEIGHTS + padded
        return SimpleNamespace(first=torch.empty(len(lengths)), lengths=lengths, answers=inputs["answers"])

    def rows_that_fit(self, rows: int, *_: Any) -> int:
        """Return ``rows``: memory suffices."""
        return rows

    def buffers(self, rows: int, *_: Any) -> Any:
        """Make the state of ``rows`` slots."""
        self.rows, self.left, self.kept = rows, torch.zeros(rows, dtype=torch.long), torch.zeros(rows, dtype=torch.long)
        self.said = torch.zeros(rows, 1, dtype=torch.long)
        return self

    def begin(self) -> None:
        """End all rows."""
        self.left.zero_()

    def fill(self, slots: torch.Tensor, new: Any, most: int) -> None:
        """Begin prefilled rows."""
        self.kept[slots] = torch.tensor(new.lengths)
        self.left[slots] = torch.tensor(new.answers) - 1  # the prefill has said one

    def step(self, columns: int) -> None:
        """Decode one token a row."""
        self.steps += 1
        self.clock += WEIGHTS
        active = self.left > 0
        self.used += int(active.sum())
        self.kept.add_(active)
        self.needed += int(self.kept[active].sum())
        self.by_lengths += int(torch.where(active, self.kept, 1).sum())
        self.by_windows += self.rows * window_of(columns)
        self.left.sub_(1).clamp_(0)

    @property
    def done(self) -> torch.Tensor:
        """Whether each row has ended."""
        return self.left == 0


def answer_lengths(n: int) -> list[int]:
    """Draw lengths of captions: log-normal, median 55, at most LIMIT."""
    drawn = np.random.default_rng(5).lognormal(np.log(55), 0.5, n)
    return np.clip(drawn.astype(int), 2, LIMIT).tolist()


class Stages:
    """Engine job: decode pieces of (item, lengths, answers) in the slots of a card slower than its feeders.

    Before each step it waits until all pieces are prepared that the engine and LANES items in flight let in.
    """

    def __init__(self, card: Any, slots: int) -> None:
        self.card, self.decoder, self.changed = card, RefilledDecoder(card, slots), threading.Condition()
        self.left: dict[int, int] = {}  # pieces of each item that are not fetched
        self.read = self.prepared = self.launched = 0
        self.waiting: tuple[int, int] = (0, 0)  # the card's steps and used slots at the last launch
        self.step, card.step = card.step, self.step_when_fed

    def begin(self, item: int, pieces: int) -> None:
        """Account for an item in flight."""
        with self.changed:
            self.left[item] = pieces
            self.read += pieces
            self.changed.notify()

    def prepare(self, piece: Any) -> Any:
        """Return the piece unchanged."""
        with self.changed:
            self.prepared += 1
            self.changed.notify()
        return piece

    def is_fed(self) -> bool:
        """Return whether all pieces are prepared that may be."""
        begun = min(ITEMS, LANES + list(self.left.values()).count(0))
        return len(self.left) == begun and self.prepared >= min(self.read, self.launched + 2 * FEEDERS + 2)

    def step_when_fed(self, columns: int) -> None:
        """Decode one token a row once the feeders are done."""
        with self.changed:
            assert self.changed.wait_for(self.is_fed, 60)
        self.step(columns)

    def infer(self, piece: Any) -> Any:
        """Begin a piece in the slots."""
        item, lengths, answers = piece
        mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        inputs = {"attention_mask": mask, "lengths": lengths, "answers": answers}
        running = self.decoder.launch([BatchPart(list(range(len(lengths))), inputs)], LIMIT, dict)
        self.launched += 1
        self.waiting = (self.card.steps, self.card.used)
        return item, running

    def stepwise(self, running: Any) -> Any:
        """Return the batch that advances."""
        return running[1]

    def fetch(self, running: Any) -> None:
        """Run a piece to its end."""
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


def main() -> None:
    """Run the simulation and write its result."""
    options = parser(__doc__).parse_args()
    rows = []
    for name, slots in SLOTS.items():
        stages = refilled(LENGTHS[name] * ITEMS, answer_lengths(512 * ITEMS), slots)
        card, (steps, used) = stages.card, stages.waiting
        read, windows = card.by_lengths / card.needed, card.by_windows / card.needed
        in_use, padding = card.used / (card.steps * slots), card.wasted / card.prefilled
        note = f"{used / (steps * slots):.3f} while prompts wait; padding of a masked prefill {padding:.3f}"
        rows.append(Row(f"{name}: slots in use", "of 1", in_use, target=">= 0.88", met=in_use >= 0.88, note=note))
        what, target = f"{name}: columns read, of those needed", "<= 1.05"
        rows.append(Row(what, "times", read, windows, "masked windows", windows / read, None, target, read <= 1.05))
        shape = {**SHAPES, "fuser": FUSER, "one tile": SHAPES["smolvlm"]}[name]
        column = shape.decoder.kv_bytes / card.steps * 1e3
        ms, before = card.by_lengths * column / FLASH, card.by_windows * column / MASKED
        rows.append(Row(f"{name}: attention of a step, computed", "ms", ms, before, "masked windows", before / ms))
    finish("refill", rows, options)


if __name__ == "__main__":
    main()
