"""Run declared scores over a batch in three phases: preprocessing on a CPU, model inference on the device, results."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.ops.batch import Batch
from pairmill.ops.fault import Fault
from pairmill.ops.models.model_digest import ModelError
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import CHUNK
from pairmill.tasks.run.items.rows import OWN, measured, quarantine, score_rows
from pairmill.tasks.run.place.identity import Bound

_OF_DEVICE = re.compile(r"OutOfMemory|out of memory|AcceleratorError|BrokenDevice|CUDA|ALLOC_FAILED")


class PhasedOp(Protocol):
    """An op that separates its model's CPU work (``prepare``) from its device work (``infer``, ``fetch``).

    ``fetch`` returns the added columns. Where a row may fail it also returns ``fault``: per row None, or the Fault of a
    row without values. See `ops/models/device/engine.py`.
    """

    def prepare(self, batch: Batch, /) -> Any:
        """Preprocess a batch on a CPU."""
        ...

    def infer(self, ready: Any, /) -> Any:
        """Launch the model on a prepared batch, without waiting."""
        ...

    def fetch(self, running: Any, /) -> Batch:
        """Wait for the model and return the columns that it adds."""
        ...


@dataclass(frozen=True)
class Scored:
    """A batch of rows between preprocessing and storage, with its results so far.

    Attributes:
        keys: The keys of all rows.
        good: Positions of the rows that are scored.
        bad: Faults of the other rows.
        found: Values so far, by table and column.
        of_models: Each model scorer with its prepared input, or with its running batch.
    """

    keys: tuple[str, ...]
    good: list[int]
    bad: list[Fault]
    found: dict[str, dict[str, list]]
    of_models: list[tuple[Bound, Any]]


def run_op(scorer: Bound, batch: Batch) -> Batch:
    """Run an op without halves over ``batch``. Raises as `naming_package`."""
    with naming_package(scorer.score):
        return scorer.op(batch)


@contextmanager
def naming_package(score: Score) -> Iterator[None]:
    """Turn what another package's op raises into a PairmillError that names the package, its line, and the remedy.

    Without it a user gets a traceback of a program that is not theirs. What has a remedy of its own, no room, and a
    device that broke are for others to see.
    """
    try:
        yield
    except (PairmillError, ModelError, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        if score.package == OWN or _OF_DEVICE.search(f"{type(error).__name__}: {error}"):
            raise
        at = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise PairmillError(
            f"package '{score.package}', score '{score.name}': its op failed ({said}; {at.filename}:{at.lineno}). "
            "Update or uninstall the package."
        ) from error


def prepare(scorers: list[Bound], batch: Batch, keys: tuple[str, ...], good: list[int], bad: list[Fault]) -> Scored:
    """Run the scorers without a model over ``batch`` and prepare the models' inputs.

    ``batch`` has the rows at the positions ``good`` of ``keys``.
    """
    found = {each.score.table: measured(each.score, run_op(each, batch)) for each in scorers if not each.score.model}
    ready = []
    for each in scorers:
        if each.score.model:
            with naming_package(each.score):
                ready.append((each, _halves(each).prepare(batch)))
    return Scored(keys, good, bad, found, ready)


def infer(ready: Scored) -> Scored:
    """Launch each model on its prepared input."""
    begun = []
    for each, given in ready.of_models:
        with naming_package(each.score):
            begun.append((each, _halves(each).infer(given)))
    return replace(ready, of_models=begun)


def fetch(running: Scored) -> Scored:
    """Wait for the models and add their values. A row that fails in a model gets a Fault, and NULLs of that model."""
    found, bad = dict(running.found), list(running.bad)
    for each, given in running.of_models:
        counted = {name: range(len(running.good)) for name in each.score.reads}
        with naming_package(each.score):
            columns = _halves(each).fetch(given)
        faults: list[Fault | None] = columns.get("fault", [None] * len(running.good))
        found[each.score.table] = {
            name: [None if fault else value for value, fault in zip(values, faults, strict=True)]
            for name, values in measured(each.score, counted | columns).items()
        }
        bad += [fault.about(running.keys[at]) for at, fault in zip(running.good, faults, strict=True) if fault]
    return replace(running, found=found, bad=bad, of_models=[])


def score_parts(scorers: list[Bound], pieces: list[Scored], step: str) -> Iterator[Part]:
    """Build the table rows of an item: one part per score, and one of quarantine rows.

    Rows without values get NULLs. The quarantine rows are of stage ``step``, one an item.
    """
    keys = [key for piece in pieces for key in piece.keys]
    for each in scorers:
        values: dict[str, list] = {}
        for piece in pieces:
            for name, column in piece.found[each.score.table].items():
                values.setdefault(name, []).extend(_spread(column, piece.good, len(piece.keys)))
        yield Part(each.score.table, score_rows(each.score, keys, values), each.digest)
    if bad := {fault.item: fault for piece in pieces for fault in piece.bad}:
        yield Part("quarantine", quarantine(list(bad), [""] * len(bad), step, list(bad.values())))


def null_parts(scorers: list[Bound], keys: tuple[str, ...]) -> list[Part]:
    """Make rows of NULLs for items that kill their worker, so that they are not pending again."""
    return [Part(each.score.table, score_rows(each.score, list(keys), {}), each.digest) for each in scorers]


def load(scorers: tuple[Bound, ...]) -> None:
    """Load the models of these scorers, if their ops have a ``load`` method."""
    for each in scorers:
        if each.score.model and hasattr(each.op, "load"):
            with naming_package(each.score):
                each.op.load()  # type: ignore[attr-defined]


def batch_size(scorers: list[Bound]) -> int:
    """Return the batch size of the first model among these scorers, CHUNK without a model."""
    for each in scorers:
        if each.score.model:
            op: Any = each.op
            return op.fitted_batch_size() if hasattr(op, "fitted_batch_size") else getattr(op, "batch_size", CHUNK)
    return CHUNK


def model_of(scorers: tuple[Bound, ...]) -> str:
    """Return the recipe's name of the model among these scorers, '' without one."""
    return next((each.score.model for each in scorers if each.score.model), "")


def _spread(values: list, at: list[int], n: int) -> list:
    """Return a list of length ``n`` with ``values`` at the positions ``at`` and None elsewhere."""
    spread: list = [None] * n
    for place, value in zip(at, values, strict=True):
        spread[place] = value
    return spread


class _Whole:
    """Adapt an op without separate CPU and device work: ``infer`` runs all of it."""

    def __init__(self, op: Callable[[Batch], Batch]) -> None:
        self._op = op

    def infer(self, ready: Any) -> Any:
        return self._op(ready)

    def prepare(self, batch: Batch) -> Any:
        return batch

    def fetch(self, running: Any) -> Batch:
        return running


def _halves(each: Bound) -> PhasedOp:
    """Return the op if it separates CPU and device work, else an adapter of it."""
    op: Any = each.op
    return op if hasattr(op, "infer") else _Whole(op)
