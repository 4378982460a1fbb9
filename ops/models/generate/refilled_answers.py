"""Answer prepared batches in refilled slots, and again in a batch of their own where that fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pairmill.ops.models.device.device import exact_inference
from pairmill.ops.models.device.failures import is_broken, is_no_room
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.generate.batch_part import BatchPart
from pairmill.ops.models.generate.refilled_decoding import Place, RefilledBatch, RefilledDecoder
from pairmill.ops.models.generation import Generation

Found = TypeVar("Found")


class SlottedAnswerer(Protocol):
    """The answerer whose decoder runs the slots.

    Attributes:
        model: A model of transformers.
        decoder: Its captured decoder; None if it has none, or has lost it.
    """

    model: Any
    decoder: Any

    def give_up_capture(self, error: Exception, /) -> None:
        """Use no captured decoder from now on, and note why."""
        ...


@dataclass(frozen=True)
class RunningAnswers:
    """The answers of a batch that is decoded beside others.

    Attributes:
        slots: The slots in which it is decoded.
        batch: The batch.
        read: Turns its tokens into answers.
        alone: Answers it anew, in a batch of its own.
    """

    slots: RefilledSlots
    batch: RefilledBatch
    read: Callable[[RefilledBatch], list[Generation]]
    alone: Callable[[], list[Generation]]

    @property
    def has_ended(self) -> bool:
        """Whether the answers have ended, or must be made anew."""
        return self.batch.has_ended

    def advance(self) -> None:
        """Run some steps unless the answers have ended."""
        self.slots.attempt(self.batch.advance)

    def result(self) -> list[Generation]:
        """Wait for the answers."""
        while not self.has_ended:
            self.advance()
        if not self.batch.is_lost:
            return self.read(self.batch)
        self.slots.settle()
        return self.alone()


class RefilledSlots:
    """The slots in which an answerer's captured decoder answers many batches at once.

    If the decoder fails, its running batches are answered anew, each in a batch of its own. If memory ran out, there
    are half as many slots from then on; after any other failure there are none.
    """

    def __init__(self, answerer: SlottedAnswerer) -> None:
        self._answerer = answerer
        self._most: int | None = None  # the most slots, once memory has run out
        self._decoder: RefilledDecoder | None = None

    def launch(
        self,
        parts: Sequence[BatchPart],
        rows: int,
        max_tokens: int,
        place: Place,
        read: Callable[[RefilledBatch], list[Generation]],
        alone: Callable[[], list[Generation]],
    ) -> RunningAnswers | list[Generation]:
        """Begin a batch in one of ``rows`` slots a row; answer it ``alone`` if it cannot run beside others."""
        rows = min(rows, self._most or rows)
        n = max((len(part.rows) for part in parts), default=0)
        if not 0 < n <= rows or self._answerer.decoder is None:
            self.settle()
            return alone()
        if self._decoder is None or self._decoder.rows != rows:
            self.settle()
            self._decoder = RefilledDecoder(self._answerer.decoder, rows)
        decoder = self._decoder
        batch = self.attempt(lambda: decoder.launch(parts, max_tokens, place))
        return alone() if batch is None else RunningAnswers(self, batch, read, alone)

    def settle(self) -> None:
        """Run what is in the slots to its end, so that the decoder is free for a batch of its own."""
        if self._decoder is not None:
            self.attempt(self._decoder.close)
            self._decoder = None

    def attempt(self, work: Callable[[], Found]) -> Found | None:
        """Run device work; if it fails, give up the running batches and return None. Raises if the device is lost."""
        try:
            with exact_inference():
                return work()
        except Exception as error:
            if is_broken(error):
                raise
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        """Mark the running batches as lost, and answer with half of the slots, or with none."""
        if self._decoder is None:
            raise error
        rows, model = self._decoder.rows, type(self._answerer.model).__name__
        self._decoder.abandon()
        self._decoder = None
        if not is_no_room(error):
            self._answerer.give_up_capture(error)
            return
        if self._answerer.decoder is not None:
            self._answerer.decoder.release()
        self._most = max(1, rows // 2)
        note(f"{model}: the GPU has no memory for {rows} answers at once, {self._most} are generated from now on")
