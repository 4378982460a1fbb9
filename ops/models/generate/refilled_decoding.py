"""Decode prompts of many batches at once: a slot whose answer has ended takes a prompt of the next batch.

Answers differ in length. In batches that end together, captions of 25 to 128 tokens use 47 % of the slots. Refilled
slots are used to 94 % while prompts wait, and to 91 % of a run of 32 items of 512 rows, its end included: simulated
through the engine by infra/bench/refill.py.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pairmill.ops.models.device.failures import is_no_room
from pairmill.ops.models.generate.batching import BatchPart
from pairmill.ops.models.generate.cuda_graph_decoding import Buffers, Decoder, Place, Prefilled, window_of

# Look every 4 steps which answers have ended. Each look waits for the device, 0.1 ms where a step takes 3 to 30 ms.
LOOK = 4


@dataclass
class RefilledBatch:
    """A running batch whose rows are decoded in slots beside rows of other batches."""

    decoder: "RefilledDecoder"
    left: int  # rows that have not ended
    found: dict[int, list[int]] = field(default_factory=dict)  # tokens of each row whose answer has ended
    seconds: float = 0.0  # the device's time for its rows: of each step, each row's share
    is_lost: bool = False  # whether the decoder has failed and gives no answers

    @property
    def has_ended(self) -> bool:
        """Whether all answers have ended, or the decoder has failed and none will come."""
        return not self.left or self.is_lost

    def advance(self) -> None:
        """Run some decoding steps unless all answers have ended."""
        if not self.has_ended:
            self.decoder.advance()

    def tokens(self) -> torch.Tensor:
        """Return the generated tokens (n, most) of a batch that has ended."""
        return torch.tensor([self.found[row] for row in range(len(self.found))])


@dataclass
class _Slot:
    """A row in a slot."""

    batch: RefilledBatch
    row: int  # its number in the batch
    most: int  # the most tokens of its answer
    offset: int  # its prompt's tokens, less the number of steps before it began
    spent: float  # the decoder's time for one slot when it began


class RefilledDecoder:
    """Generate greedily in ``rows`` decoding slots, refilled as answers end. Call from one thread at a time.

    A part of a batch begins once as many slots are free as it has rows. `batching.refill_groups` cuts such batches. The
    buffers grow to the longest prompt and answer so far.
    """

    def __init__(self, decoder: Decoder, rows: int) -> None:
        self.decoder, self.rows = decoder, rows
        self._active: dict[int, _Slot] = {}
        self._steps, self._looked, self._spent = 0, 0.0, 0.0
        self._prompt = self._most = 0
        self._drop()

    def launch(self, parts: Sequence[BatchPart], max_tokens: int, place: Place) -> RefilledBatch | None:
        """Prefill a batch and begin its rows as soon as slots are free; steps of other batches run until then.

        Returns None if the device has no room to prefill it. No other batch runs then.
        """
        batch = RefilledBatch(self, sum(len(part.rows) for part in parts))
        for part in parts:
            lengths = part.inputs["attention_mask"].sum(1).tolist()
            self._reserve(len(lengths), max(lengths), max_tokens)
            if (new := self._prefilled(part.inputs, place)) is None:
                self.close()
                return None
            self._begin(batch, part.rows, lengths, new, max_tokens)
        return batch

    def advance(self) -> None:
        """Run some decoding steps for all slots, and hand ended answers to their batches."""
        if not self._active or self._buffers is None:
            return
        offset = max(slot.offset for slot in self._active.values())
        for _ in range(LOOK):
            self._steps += 1
            self._buffers.step(offset + self._steps)
        done = self._buffers.done.tolist()  # waits for the device
        now = time.perf_counter()
        self._spent += (now - self._looked) / len(self._active)
        self._looked = now
        self._collect([slot for slot in self._active if done[slot]])

    def close(self) -> None:
        """Run all batches to their end, and release the buffers for another user of the decoder."""
        while self._active:
            self.advance()
        self._drop()

    def abandon(self) -> None:
        """Mark all running batches as lost, and release the buffers."""
        for slot in self._active.values():
            slot.batch.is_lost = True
        self._active.clear()
        self._drop()

    def _drop(self) -> None:
        self._buffers: Buffers | None = None
        self._free = list(range(self.rows))

    def _reserve(self, n: int, length: int, max_tokens: int) -> None:
        """Run steps until ``n`` slots are free, or all if the buffers are too short for these lengths."""
        if length > self._prompt or max_tokens > self._most:
            self.close()
            self._prompt, self._most = max(window_of(length), self._prompt), max(max_tokens, self._most)
        while len(self._free) < n and self._active:
            self.advance()

    def _prefilled(self, inputs: dict[str, Any], place: Place) -> Prefilled | None:
        """Prefill a part; None if the device has no room for it."""
        try:
            return self.decoder.prefill(inputs, place)
        except Exception as error:
            if not is_no_room(error):
                raise
            return None

    def _begin(
        self, batch: RefilledBatch, rows: list[int], lengths: list[int], new: Prefilled, max_tokens: int
    ) -> None:
        """Put prefilled rows, of ``lengths`` tokens, into free slots. Raises OutOfMemoryError if there are too few."""
        if self._buffers is None:
            fitting = self.decoder.rows_that_fit(self.rows, self._prompt, self._most, new)
            if fitting >= len(rows):
                self._buffers = self.decoder.buffers(fitting, self._prompt, self._most, new)
                self._buffers.begin()
                self._free = list(range(fitting))
        if self._buffers is None or len(self._free) < len(rows):
            raise torch.cuda.OutOfMemoryError(f"no room to decode {len(rows)} answers at once")
        slots, self._free = self._free[: len(rows)], self._free[len(rows) :]
        self._buffers.fill(torch.tensor(slots).to(new.first.device, non_blocking=True), new, max_tokens)
        if not self._active:
            self._looked = time.perf_counter()
        for slot, row, length in zip(slots, rows, lengths, strict=True):
            self._active[slot] = _Slot(batch, row, max_tokens, length - self._steps, self._spent)

    def _collect(self, ended: list[int]) -> None:
        """Free the slots whose answers have ended, after giving their tokens to their batches."""
        if not ended or self._buffers is None:
            return
        said = self._buffers.said[torch.tensor(ended, device=self._buffers.said.device)].tolist()
        for place, tokens in zip(ended, said, strict=True):
            slot = self._active.pop(place)
            slot.batch.found[slot.row] = tokens[: slot.most]
            slot.batch.left -= 1
            slot.batch.seconds += self._spent - slot.spent
        self._free += ended
