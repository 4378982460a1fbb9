"""Ops whose model runs out of memory at chosen rows, in any process; only the real op's forward pass is replaced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from pairmill.ops.batch import Batch
from pairmill.ops.models.clip.clip_scores import EmbedImages, EmbedSentences
from pairmill.ops.models.language.perplexity import Perplexity

# Op class -> (how to get its loaded model, the name of the model's forward method).
FORWARD: dict[type, tuple[Callable[[Any], Any], str]] = {
    EmbedImages: (lambda op: op._clip.loaded, "embed_images"),
    EmbedSentences: (lambda op: op._clip.loaded, "embed_tokens"),
    Perplexity: (lambda op: op._loaded(), "mean_losses"),
}


@dataclass(frozen=True)
class Cramped:
    """Op that runs out of memory at chosen rows and at large batches.

    Attributes:
        op: The real op.
        unfit: Rows that do not fit, as `inputs` shows them.
        most: The most rows of a batch that fit.
        while_there: Path of a file; if set, memory is short only while the file exists.
    """

    op: Any
    unfit: frozenset[str] = frozenset()
    most: int = 1000
    while_there: str = ""

    @property
    def batch_size(self) -> int:
        return self.op.batch_size

    def __call__(self, batch: Batch) -> Batch:
        return batch | self.fetch(self.infer(self.prepare(batch)))

    def prepare(self, batch: Batch) -> Any:
        return self.op.prepare(batch)

    def infer(self, ready: Any) -> Any:
        find, name = FORWARD[type(self.op)]
        loaded = find(self.op)
        forward = getattr(loaded, name)

        def cramped(rows: Any) -> torch.Tensor:
            is_full = len(rows) > self.most or not self.unfit.isdisjoint(map(shown, rows))
            if is_full and (not self.while_there or Path(self.while_there).exists()):
                raise torch.cuda.OutOfMemoryError("no room")
            return forward(rows)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loaded, name, cramped)
            return self.op.infer(ready)

    def fetch(self, running: Any) -> Batch:
        return self.op.fetch(running)


def shown(row: Any) -> str:
    """Return the model's input of one row as text, to compare."""
    return str(row.tolist() if torch.is_tensor(row) else row)


def inputs(op: Any, batch: Batch) -> dict[int, str]:
    """Return the model's input of each row of ``batch`` that has one, as text."""
    return {
        row: shown(given)
        for rows, given_rows in op.prepare(batch).batches
        for row, given in zip(rows, given_rows, strict=True)
    }
