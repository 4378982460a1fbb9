"""Prepare and answer batches with a generative transformers model that this process has loaded."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.ops.models.device.row_batches import NO_ROOM, run_in_parts
from pairmill.ops.models.generate.batching import BatchPart, n_tokens
from pairmill.ops.models.generate.greedy_answers import Answerer, RunningAnswers, pin_inputs
from pairmill.ops.models.generate.refilled_decoding import RefilledBatch
from pairmill.ops.models.generation import Generation

# Completes the answers of a batch, such as by those of rows that need no model.
Complete = Callable[[list[Generation]], list[Generation]]


@dataclass(frozen=True)
class Prepared:
    """Prepared inputs of one batch, on the CPU, in pinned memory if there is a GPU."""

    rows: list[Any]  # what the inputs were made from, to prepare parts of the batch again if memory runs out
    parts: list[BatchPart]
    seconds: float  # of the preparation

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs of a batch that is prepared in one part."""
        (part,) = self.parts
        return part.inputs


class LoadedModel(ABC):
    """Base of loaded generative models: the weights in this process, and how rows become inputs."""

    model: Any
    answerer: Answerer

    @abstractmethod
    def lengths(self, prompts: list[str], sizes: Sequence[tuple[int, int] | None]) -> list[int]:
        """Return the number of tokens of each row: of its prompt, and of its image of that (height, width), if any."""

    @abstractmethod
    def prompt_tokens(self, rows: list[Any]) -> list[int]:
        """Return the number of prompt tokens of each of ``rows``, which are rows of a `Prepared` batch."""

    @abstractmethod
    def padded(self, rows: list[Any]) -> dict[str, Any]:
        """Build the model's inputs for ``rows``, padded to the longest row."""

    @abstractmethod
    def own_tokenizer(self) -> Any:
        """Return the calling thread's tokenizer."""

    def placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs moved to the model's device."""
        return self.answerer.placed(inputs)

    def prepare_rows(self, rows: list[Any]) -> Prepared:
        """Build the inputs of one batch of rows on the CPU, in parts of similar length for a captured decoder."""
        started = time.perf_counter()
        # Only with a captured decoder is a batch prefilled in parts of similar length.
        lengths = [0] * len(rows) if self.answerer.decoder is None else self.prompt_tokens(rows)
        parts = [
            BatchPart(part, pin_inputs(self.padded([rows[row] for row in part])))
            for part in self.answerer.parts(lengths)
        ]
        return Prepared(rows, parts, time.perf_counter() - started)

    def infer(
        self, prepared: Prepared, max_tokens: int, slots: int = 0, complete: Complete = list
    ) -> list[Generation] | RunningAnswers:
        """Generate one answer per row, in halves if the device runs out of memory; apply ``complete`` to the answers.

        With a captured decoder and ``slots`` > 0, rows are only begun, and decoded in that many slots beside others.
        """
        if not slots or self.answerer.decoder is None:
            return complete(self._answer_in_halves(prepared, max_tokens))
        # A running batch holds its rows, to be prepared again, and not its inputs.
        rows, counts, seconds = prepared.rows, n_tokens(prepared.parts), prepared.seconds

        def read(batch: RefilledBatch) -> list[Generation]:
            found = self.answerer.read(batch.tokens(), self.own_tokenizer(), counts, seconds + batch.seconds)
            return complete(found)

        def alone() -> list[Generation]:
            return complete(self._answer_in_halves(self.prepare_rows(rows), max_tokens))

        return self.answerer.slots.launch(prepared.parts, slots, max_tokens, self.placed, read, alone)

    def _answer_in_halves(self, prepared: Prepared, max_tokens: int) -> list[Generation]:
        """Answer a batch alone, in halves if memory runs out; a single row that does not fit gets an error."""
        rows = prepared.rows

        def answer(at: range) -> list[Generation]:
            ready = prepared if len(at) == len(rows) else self.prepare_rows(rows[at.start : at.stop])
            return self.answer(ready, max_tokens)

        nothing = [Generation("", 0, "length", 0.0, *NO_ROOM)]
        return [each for _, found in run_in_parts(answer, range(len(rows))) for each in found or nothing]

    def answer(self, prepared: Prepared, max_tokens: int) -> list[Generation]:
        """Generate one answer per row, greedily, for a batch that fits the device."""
        started = time.perf_counter()
        generated = self.answerer.generate(prepared.parts, max_tokens, self.placed).cpu()
        seconds = prepared.seconds + time.perf_counter() - started
        return self.answerer.read(generated, self.own_tokenizer(), n_tokens(prepared.parts), seconds)

    def answer_to_the_end(self, prepared: Prepared, max_tokens: int) -> None:
        """Generate exactly ``max_tokens`` tokens for each row, ignoring end tokens, to measure the time."""
        with self.answerer.endless():
            self.answer(prepared, max_tokens)
