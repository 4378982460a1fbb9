"""Find the rows that kill a worker process or never end, by bisection, and quarantine them as such."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.fault import Fault
from pairmill.tasks.run.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.rows import quarantine

Result = TypeVar("Result")

# A row alone must kill twice: the first death may be another process's fault (memory of the machine used up).
DEATHS_PER_KILLER = 2
# With more killers in one item than this, a library or the machine is at fault, not the rows.
MAX_KILLERS = 8
# A part of which a worker had no row in hand when it died is tried again, as often as other parts' killers may kill.
MAX_INNOCENT = 3 * MAX_KILLERS


@dataclass(frozen=True)
class LostWorker:
    """A worker was lost over a part: why (a reason of quarantine, in words), and the rows in its hands: None if it
    could not say which, () for none of this part, which is innocent then."""

    reason: str
    detail: str
    keys: tuple[str, ...] | None = None


@dataclass
class Isolated(Generic[Result]):
    """What a bisection found: ``results`` of the parts that ran, ``killers`` by the keys of rows that lose a worker."""

    results: list[Result] = field(default_factory=list)
    killers: dict[str, LostWorker] = field(default_factory=dict)


@dataclass(frozen=True)
class _Suspect:
    """A part still to be tried: ``rows`` as `isolate` hands it on, ``deaths`` that its only row caused alone."""

    part: WorkItem
    rows: int = 0
    deaths: int = 0


def isolate(
    item: WorkItem, attempt: Callable[[WorkItem, int], Result | LostWorker], first: LostWorker | None = None
) -> Isolated[Result]:
    """Divide ``item`` until only rows that lose their worker are left: by the rows in its hands, or else by halves.

    ``attempt(part, rows)`` runs a part, with ``rows`` 1 one row after the other, so that the next loss names one. Some
    log2(n) lost workers a killer, three at most where the rows are known. ``first`` is what became of the whole item
    before, which is tried once more unless rows are known or its time was over. Raises PairmillError when the item
    cannot be divided into rows, when each of several rows kills, or when over MAX_KILLERS do.
    """
    found: Isolated[Result] = Isolated()
    waiting = [_Suspect(item)]
    while waiting:
        suspect = waiting.pop()
        part = suspect.part
        known, first = first, None
        outcome = known if known and _is_enough(known, part) else _tried(suspect, attempt)
        if not isinstance(outcome, LostWorker):
            found.results.append(outcome)
        elif _is_divisible(part):
            waiting += _divided(suspect, outcome.keys or ())
        elif len(part.keys) == 1 and _is_by_row(part) and len(found.killers) < MAX_KILLERS:
            found.killers[part.keys[0]] = outcome
        else:
            raise PairmillError(f"shard {item.shard}: worker processes die again and again ({len(part.keys)} rows)")
    if len(item.keys) > 1 and not found.results:
        raise PairmillError(f"shard {item.shard}: each of its {len(item.keys)} rows kills a worker process")
    return found


def _is_enough(lost: LostWorker, part: WorkItem) -> bool:
    """Whether a loss tells enough to divide the part at once."""
    return _is_divisible(part) and (bool(lost.keys) or lost.reason == "timeout")


def _tried(suspect: _Suspect, attempt: Callable[[WorkItem, int], Result | LostWorker]) -> Result | LostWorker:
    """Try a part, a single row again after a death; one whose time was over has had enough of it. While it was only
    others that a worker died of, the part is tried again."""
    deaths, innocent = suspect.deaths, 0
    while True:
        outcome = attempt(suspect.part, suspect.rows)
        if not isinstance(outcome, LostWorker):
            return outcome
        if outcome.keys == () and innocent < MAX_INNOCENT:
            innocent += 1
            continue
        deaths += 1
        if outcome.reason == "timeout" or len(suspect.part.keys) > 1 or deaths >= DEATHS_PER_KILLER:
            return outcome


def _is_divisible(part: WorkItem) -> bool:
    return len(part.keys) > 1 and _is_by_row(part)


def _divided(suspect: _Suspect, held: tuple[str, ...]) -> list[_Suspect]:
    """Cut a part in two, the first to be tried last: the rows that were held and the others, or two halves."""
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
    """Say what to use fewer of, and how: the replicas of the job's model, if it has one, which alone count on GPUs."""
    workers = "fewer workers (--workers, or compute.workers in Prefect)"
    if not (model := getattr(job, "model", "")):
        return workers
    return f"fewer replicas of its model (--model {model}:replicas=1, or compute.models in Prefect) or {workers}"


def _is_by_row(item: WorkItem) -> bool:
    """Whether the item can be divided: each input has one value a row. A range of clusters has not."""
    return all(isinstance(value, Sequence) and len(value) == len(item.keys) for value in item.inputs.values())


def quarantine_killers(
    item: WorkItem,
    job: Job,
    output: Output,
    attempt: Callable[[WorkItem, int], list[Manifest] | LostWorker],
    first: LostWorker | None = None,
) -> list[Manifest]:
    """Run an item that may kill its worker; return manifests of its good rows and of a quarantine row for each killer.

    ``attempt`` runs a part in a separate process, as `isolate` asks; ``first`` is what became of the whole item there.
    A job may define ``poisoned(item) -> list[Part]``: what else to write for the killers, so that they are not tried
    again. Raises PairmillError with the remedy where single rows are not to blame.
    """
    name = type(job).__name__
    try:
        found = isolate(item, attempt, first)
    except PairmillError as error:
        raise PairmillError(
            f"a worker process died while it ran {name} (killed, or out of memory): {error}; what was finished is "
            f"committed. Run the same command again; if it dies again, use {_fewer(job)}."
        ) from None
    manifests = [manifest for part in found.results for manifest in part]
    if not found.killers:
        return manifests
    # An input's key is its address, size and etag.
    names = [key.split("\x1e")[0] for key in found.killers]
    faults = [
        Fault(key, lost.reason, f"{name}: {lost.detail}")
        for key, lost in zip(names, found.killers.values(), strict=True)
    ]
    parts = [Part("quarantine", quarantine(names, [""] * len(names), getattr(job, "stage", name), faults))]
    killers = item.only(list(found.killers))
    parts += getattr(job, "poisoned", lambda _: [])(killers)
    return manifests + write_parts(parts, killers, output)
