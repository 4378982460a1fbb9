"""Find the rows that kill a worker process or never end, by bisection, and quarantine them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.fault import Fault
from pairmill.tasks.run.items.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.items.rows import quarantine

Result = TypeVar("Result")

# A single row must kill twice: another process may have caused the first death (out of memory).
DEATHS_PER_KILLER = 2
# With more killers than this in one item, a library or the machine is at fault, not the rows.
MAX_KILLERS = 8
# Retries of a part that had no row in progress when the worker died: as often as killers in other parts may kill.
MAX_INNOCENT = 3 * MAX_KILLERS
CRASHED = "the library that reads it crashed ({}): the file is damaged; replace it, or report it if it opens elsewhere"


@dataclass(frozen=True)
class LostWorker:
    """The loss of a worker while it ran a part of an item."""

    reason: str  # the reason of quarantine, 'poison', 'timeout' or 'damaged'
    detail: str  # the reason as a text for people
    # the rows in progress; None if unknown, () if no row of this part was, so that the part is innocent
    keys: tuple[str, ...] | None = None
    crash: str = ""  # the signal of a native library that ended the process, such as 'SIGABRT'; '' for any other death

    @property
    def is_damage(self) -> bool:
        """Whether the one row in progress surely ended the process, so that it is not tried again."""
        return self.reason == "damaged"


@dataclass(frozen=True)
class _Suspect:
    """A part still to be run: ``rows`` as in `isolate`, ``deaths`` that its only row has caused alone."""

    part: WorkItem
    rows: int = 0
    deaths: int = 0


def isolate(
    item: WorkItem, attempt: Callable[[WorkItem, int], Result | LostWorker], first: LostWorker | None = None
) -> tuple[list[Result], dict[str, LostWorker]]:
    """Run ``item`` in parts to find the rows that kill a worker: by the rows in progress at a death, else by halves.

    ``attempt`` runs a part; with ``rows`` 1 it runs row by row, so that the next loss names one row. ``first`` is an
    earlier loss of the whole item, which is run once more unless the rows in progress are known or the time limit was
    exceeded. Returns the results of the parts that ran, and the loss by fatal row. Takes some log2(n) lost workers for
    each fatal row, at most three if the rows in progress are known, one for a damaged row.

    Raises PairmillError if the item cannot be divided into rows, all of several rows kill, or more than MAX_KILLERS do.
    Damaged rows are not counted, unless nothing else is left of more than MAX_KILLERS.
    """
    results: list[Result] = []
    killers: dict[str, LostWorker] = {}
    waiting = [_Suspect(item)]
    while waiting:
        suspect = waiting.pop()
        part = suspect.part
        known, first = first, None
        is_enough = known and (known.is_damage or (_is_divisible(part) and (known.keys or known.reason == "timeout")))
        outcome = known if known and is_enough else _run_suspect(suspect, attempt)
        if not isinstance(outcome, LostWorker):
            results.append(outcome)
        elif outcome.is_damage and outcome.keys:
            killers[outcome.keys[0]] = outcome
            if others := [key for key in part.keys if key not in outcome.keys]:
                waiting.append(_Suspect(part.only(others), suspect.rows))
        elif _is_divisible(part):
            waiting += _divide(suspect, outcome.keys or ())
        elif len(part.keys) == 1 and _is_by_row(part) and _n_unexplained(killers) < MAX_KILLERS:
            killers[part.keys[0]] = outcome
        else:
            raise PairmillError(f"shard {item.shard}: worker processes die again and again ({len(part.keys)} rows)")
    if len(item.keys) > 1 and not results and (_n_unexplained(killers) or len(killers) > MAX_KILLERS):
        raise PairmillError(f"shard {item.shard}: each of its {len(item.keys)} rows kills a worker process")
    return results, killers


def _n_unexplained(killers: Mapping[str, LostWorker]) -> int:
    """Count the killers that may be innocent: a machine without memory kills too, but not by a crash."""
    return sum(not lost.is_damage for lost in killers.values())


def _run_suspect(suspect: _Suspect, attempt: Callable[[WorkItem, int], Result | LostWorker]) -> Result | LostWorker:
    """Run a part; retry a single row after a death, but not after a timeout.

    A part that had no row in progress when the worker died is retried up to MAX_INNOCENT times.
    """
    deaths, innocent = suspect.deaths, 0
    while True:
        outcome = attempt(suspect.part, suspect.rows)
        if not isinstance(outcome, LostWorker):
            return outcome
        if outcome.keys == () and innocent < MAX_INNOCENT:
            innocent += 1
            continue
        deaths += 1
        if outcome.reason != "poison" or len(suspect.part.keys) > 1 or deaths >= DEATHS_PER_KILLER:
            return outcome


def _is_divisible(part: WorkItem) -> bool:
    """Return whether the part has several rows and can be divided by row."""
    return len(part.keys) > 1 and _is_by_row(part)


def _divide(suspect: _Suspect, held: tuple[str, ...]) -> list[_Suspect]:
    """Divide a part in two, in reverse order of execution: rows in progress and others, or two halves."""
    part, rows, in_hand = suspect.part, suspect.rows, set(held)
    suspects = [key for key in part.keys if key in in_hand]
    if 0 < len(suspects) < len(part.keys):
        others = [key for key in part.keys if key not in in_hand]
        alone = int(len(suspects) == 1)  # the worker had this row alone
        return [_Suspect(part.only(others), rows), _Suspect(part.only(suspects), 1, alone)]
    if suspects and not rows:
        return [_Suspect(part, 1)]
    middle = len(part.keys) // 2
    return [_Suspect(part.only(part.keys[middle:]), rows), _Suspect(part.only(part.keys[:middle]), rows)]


def _fewer(job: Job) -> str:
    """Return the remedy for an error message: fewer workers, or fewer replicas of the job's model.

    On GPUs only the replicas count.
    """
    workers = "fewer workers (--workers, or compute.workers in Prefect)"
    if not (model := getattr(job, "model", "")):
        return workers
    return f"fewer replicas of its model (--model {model}:replicas=1, or compute.models in Prefect) or {workers}"


def _is_by_row(item: WorkItem) -> bool:
    """Return whether the item can be divided by row: each input has one value per row. A range of clusters has not."""
    return all(isinstance(value, Sequence) and len(value) == len(item.keys) for value in item.inputs.values())


def _explain(outcome: Result, job: Job) -> Result | LostWorker:
    """Change a loss to 'damaged' if its one row in progress is a source's unit, on which a native library crashed."""
    if not isinstance(outcome, LostWorker) or not outcome.crash or len(outcome.keys or ()) != 1:
        return outcome
    is_unit = getattr(job, "reads_sources", False)
    return replace(outcome, reason="damaged", detail=CRASHED.format(outcome.crash)) if is_unit else outcome


def quarantine_killers(
    item: WorkItem,
    job: Job,
    output: Output,
    attempt: Callable[[WorkItem, int], list[Manifest] | LostWorker],
    first: LostWorker | None = None,
) -> list[Manifest]:
    """Run an item that may kill its worker; return the manifests of its good rows and of a quarantine row per killer.

    A job may define ``poisoned(item) -> list[Part]``: further rows for the killers, so that they are not pending again.
    If its ``reads_sources`` is true, a row in progress at a native crash is ``damaged`` at once. Details name the job's
    class, or its ``shown_as`` where that is set. ``attempt`` runs a part in a separate process; it and ``first`` are as
    in `isolate`. Raises PairmillError, with the remedy, when single rows are not to blame.
    """
    name = getattr(job, "shown_as", type(job).__name__)
    try:
        results, killers = isolate(item, lambda part, rows: _explain(attempt(part, rows), job), _explain(first, job))
    except PairmillError as error:
        raise type(error)(  # a death while loading stays one
            f"a worker process died while it ran {name} (killed, or out of memory): {error}; what was finished is "
            f"committed. Run the same command again; if it dies again, use {_fewer(job)}."
        ) from None
    manifests = [manifest for part in results for manifest in part]
    if not killers:
        return manifests
    # The key of an ingest unit joins its address, size and etag.
    faults = [Fault(key.split("\x1e")[0], lost.reason, f"{name}: {lost.detail}") for key, lost in killers.items()]
    parts = [Part("quarantine", quarantine(getattr(job, "stage", name), faults))]
    fatal = item.only(list(killers))
    parts += getattr(job, "poisoned", lambda _: [])(fatal)
    return manifests + write_parts(parts, fatal, output)
