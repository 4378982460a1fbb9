"""Compute declared scores over the rows of a work item, or over stored vectors; models run apart from CPU work."""

import re
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_vectors
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Score
from pairmill.ops.batch import Batch
from pairmill.ops.fault import Fault
from pairmill.ops.models.model_digest import ModelError
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import CHUNK
from pairmill.tasks.run.items.rows import OWN, check_columns, quarantine, read_rows, score_rows, to_vectors
from pairmill.tasks.run.place.identity import Bound, bound
from pairmill.tasks.run.session import Session

_OF_DEVICE = re.compile(r"OutOfMemory|out of memory|AcceleratorError|BrokenDevice|CUDA|ALLOC_FAILED")


@dataclass(frozen=True)
class Scored:
    """A batch of rows between preprocessing and storage, with its results so far."""

    keys: tuple[str, ...]  # the keys of all rows
    good: list[int]  # positions of the rows that are scored
    bad: list[Fault]  # faults of the other rows
    found: dict[str, dict[str, list]]  # values so far, by table and column
    of_models: list[tuple[Bound, Any]]  # each model scorer with its prepared input, or with its running batch


@dataclass(frozen=True)
class ScoringJob(ABC):
    """Model job: compute the pending scores of a work item's rows.

    The op of a model may have methods ``prepare`` (preprocess a batch on a CPU), ``infer`` (launch the model, without
    waiting) and ``fetch``, which returns the added columns and, where a row may fail, ``fault``: per row None, or the
    Fault of a row without values. See `ops/models/device/engine.py`. ``infer`` calls an op without these methods.

    ``scorers`` are the scorers of all tables that an item may lack.
    """

    item_rows: ClassVar[int]

    scorers: tuple[Bound, ...]

    @property
    def stage(self) -> str:
        """Name of the step, also in quarantine rows: by default that of the first score."""
        return self.scorers[0].score.step

    @property
    def model(self) -> str:
        """The recipe's name of the first model among the scorers, '' without one."""
        return next((each.score.model for each in self.scorers if each.score.model), "")

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        """Score an item batch after batch, in this thread; return the rows."""
        return one_by_one(self, item)

    def load(self) -> None:
        """Load the models, if their ops have a ``load`` method."""
        for each in self.scorers:
            op: Any = each.op
            if each.score.model and hasattr(op, "load"):
                with naming_package(each.score):
                    op.load()

    @abstractmethod
    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the item's rows in batches of ``rows``, 0 for the job's own size."""

    @abstractmethod
    def prepare(self, piece: Piece) -> Scored:
        """Return a batch's values of scorers without a model, and the models' prepared input."""

    def infer(self, ready: Scored) -> Scored:
        """Launch the models on a prepared batch, without waiting for the device; return the running batch."""
        begun = []
        for each, given in ready.of_models:
            with naming_package(each.score):
                begun.append((each, _phase(each, "infer", each.op)(given)))
        return replace(ready, of_models=begun)

    def fetch(self, running: Scored) -> Scored:
        """Wait for the models' values of a batch; a row on which a model fails gets a Fault, and that model's NULLs."""
        found, bad = dict(running.found), list(running.bad)
        for each, given in running.of_models:
            counted = {name: range(len(running.good)) for name in each.score.reads}
            with naming_package(each.score):
                columns = _phase(each, "fetch")(given)
            faults: list[Fault | None] = columns.get("fault", [None] * len(running.good))
            found[each.score.table] = {
                name: [None if fault else value for value, fault in zip(values, faults, strict=True)]
                for name, values in check_columns(each.score, counted | columns).items()
            }
            bad += [fault.about(running.keys[at]) for at, fault in zip(running.good, faults, strict=True) if fault]
        return replace(running, found=found, bad=bad, of_models=[])

    def parts(self, item: WorkItem, found: list[Scored]) -> Iterator[Part]:
        """Convert an item's batches to rows of each score, NULLs for rows without values, and quarantine rows."""
        keys = [key for piece in found for key in piece.keys]
        for each in self.wanted(item.tables):
            values: dict[str, list] = {}
            for piece in found:
                for name, column in piece.found[each.score.table].items():
                    values.setdefault(name, []).extend(_spread(column, piece.good, len(piece.keys)))
            yield Part(each.score.table, score_rows(each.score, keys, values), each.digest)
        if bad := {fault.item: fault for piece in found for fault in piece.bad}:
            yield Part("quarantine", quarantine(self.stage, list(bad.values())))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for rows that kill their worker, so that they are not pending again."""
        return self.null_parts(item, item.keys)

    def null_parts(self, item: WorkItem, keys: Iterable[str]) -> list[Part]:
        """Make rows of NULLs for ``keys`` in each table that the item lacks."""
        wanted = self.wanted(item.tables)
        return [Part(each.score.table, score_rows(each.score, list(keys), {}), each.digest) for each in wanted]

    def wanted(self, tables: tuple[str, ...]) -> list[Bound]:
        """Return the job's scorers whose table is one of ``tables``."""
        return [each for each in self.scorers if each.score.table in tables]


def prepare_scores(
    scorers: list[Bound], batch: Batch, keys: tuple[str, ...], good: list[int], bad: list[Fault]
) -> Scored:
    """Return the values of scorers without a model for ``batch``, and the models' prepared inputs.

    ``batch`` has the rows at the positions ``good`` of ``keys``; ``bad`` are the faults of the other rows.
    """
    found, ready = {}, []
    for each in scorers:
        if not each.score.model:
            found[each.score.table] = check_columns(each.score, run_op(each, batch))
            continue
        with naming_package(each.score):
            ready.append((each, _phase(each, "prepare")(batch)))
    return Scored(keys, good, bad, found, ready)


def batch_size(scorers: list[Bound]) -> int:
    """Return the batch size of the first model among these scorers, CHUNK without a model."""
    for each in scorers:
        if each.score.model:
            op: Any = each.op
            return op.fitted_batch_size() if hasattr(op, "fitted_batch_size") else getattr(op, "batch_size", CHUNK)
    return CHUNK


def run_op(scorer: Bound, batch: Batch) -> Batch:
    """Return ``batch`` with the columns of the scorer's op. Raises PairmillError if the op of another package fails."""
    with naming_package(scorer.score):
        return scorer.op(batch)


@contextmanager
def naming_package(score: Score) -> Iterator[None]:
    """Convert an error of another package's op to a PairmillError that names the package, the line, and the remedy.

    Otherwise the user would get a traceback of a foreign program. Errors with a remedy of their own, lack of memory and
    a broken device pass unchanged: callers handle them.
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


def _phase(scorer: Bound, name: str, whole: Any = lambda given: given) -> Any:
    """Return the op's method ``name`` if it separates CPU and device work, else ``whole``."""
    return getattr(scorer.op, name) if hasattr(scorer.op, "infer") else whole


def _spread(values: list, at: list[int], n: int) -> list:
    """Return a list of length ``n`` with ``values`` at the positions ``at`` and None elsewhere."""
    spread: list = [None] * n
    for place, value in zip(at, values, strict=True):
        spread[place] = value
    return spread


def score_vectors(session: Session, kind: str) -> None:
    """Compute the scores of ``kind`` ('image', 'sentence') whose op reads stored vectors, one pass a score."""
    for each in bound(session.plan, kind):
        if each.score.vector_table:
            pending = pending_vectors(session.lake, session.plan, each.score)
            session.work_rounds(each.score.name.replace("_", " "), pending, ScoreVectors(each))


@dataclass(frozen=True)
class ScoreVectors:
    """Job: score the stored vectors of one shard by a small model (a head) into one table; NULLs without a vector."""

    scorer: Bound

    @property
    def model(self) -> str:
        """The recipe's name of the model that the op loads, '' without one; it sets the job's resources."""
        return self.scorer.score.model

    @property
    def unit(self) -> str:
        """Name of the scored rows in the plural, for progress."""
        return "pictures" if self.scorer.score.of == "image" else "sentences"

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the vectors of one item; return the rows of the score's table."""
        score = self.scorer.score
        (column,) = score.reads
        rows = read_rows(item, [score.key, column], score.key)
        there = np.flatnonzero(rows[column].is_valid().to_numpy())
        vectors = to_vectors(rows[column].take(pa.array(there)))
        found = check_columns(score, run_op(self.scorer, {column: vectors}))
        values = {name: _spread(numbers, there.tolist(), rows.num_rows) for name, numbers in found.items()}
        return [Part(score.table, score_rows(score, rows[score.key].to_pylist(), values), self.scorer.digest)]
