"""Find the rows that kill a worker process or never end, by bisection, and quarantine them as such."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from catalog.pending.item import WorkItem
from catalog.terms.error import PairmillError
from catalog.write.commit import Manifest
from ops.fault import Fault
from tasks.run.partition import Job, Output, Part, write_parts
from tasks.run.rows import quarantine

Result = TypeVar("Result")

# A row alone must kill twice: the first death may be another process's fault (memory of the machine used up).
DEATHS_PER_KILLER = 2
# With more killers in one item than this, a library or the machine is at fault, not the rows.
MAX_KILLERS = 8


@dataclass(frozen=True)
class Lost:
    """A worker was lost over a part: why (a reason of quarantine, in words), and the row it was at, '' if unknown."""

    reason: str
    detail: str
    key: str = ""


@dataclass
class Isolated(Generic[Result]):
    """What a bisection found: ``results`` of the parts that ran, ``killers`` by the keys of rows that lose a worker."""

    results: list[Result] = field(default_factory=list)
    killers: dict[str, Lost] = field(default_factory=dict)


def isolate(
    item: WorkItem, attempt: Callable[[WorkItem], Result | Lost], first: Lost | None = None
) -> Isolated[Result]:
    """Divide ``item`` until only rows that lose their worker are left: by the row it was at, or else by halves.

    Some log2(n) lost workers a killer, two where the row is known. ``first`` is what became of the whole item before,
    which is tried once more unless a row is known or its time was over. Raises PairmillError when the item cannot be
    divided into rows, when each of several rows kills, or when over MAX_KILLERS do.
    """
    found: Isolated[Result] = Isolated()
    waiting = [item]
    while waiting:
        part = waiting.pop()
        known, first = (
            (first if first and _is_divisible(part) and (first.key or first.reason == "timeout") else None),
            None,
        )
        outcome = known or _tried(part, attempt)
        if not isinstance(outcome, Lost):
            found.results.append(outcome)
        elif _is_divisible(part):
            waiting += _divided(part, outcome.key)
        elif len(part.keys) == 1 and _is_by_row(part) and len(found.killers) < MAX_KILLERS:
            found.killers[part.keys[0]] = outcome
        else:
            raise PairmillError(f"shard {item.shard}: worker processes die again and again ({len(part.keys)} rows)")
    if len(item.keys) > 1 and not found.results:
        raise PairmillError(f"shard {item.shard}: each of its {len(item.keys)} rows kills a worker process")
    return found


def _tried(part: WorkItem, attempt: Callable[[WorkItem], Result | Lost]) -> Result | Lost:
    """Try a part, a single row again after a death; one whose time was over has had enough of it."""
    outcome = attempt(part)
    for _ in range(DEATHS_PER_KILLER - 1):
        if isinstance(outcome, Lost) and outcome.reason != "timeout" and len(part.keys) == 1:
            outcome = attempt(part)
    return outcome


def _is_divisible(part: WorkItem) -> bool:
    return len(part.keys) > 1 and _is_by_row(part)


def _divided(part: WorkItem, key: str) -> list[WorkItem]:
    """Cut a part in two, the first to be tried last: the row ``key`` and the others, or two halves."""
    if key in part.keys:
        return [part.only([each for each in part.keys if each != key]), part.only([key])]
    middle = len(part.keys) // 2
    return [part.only(part.keys[middle:]), part.only(part.keys[:middle])]


def _is_by_row(item: WorkItem) -> bool:
    """Whether the item can be divided: each input has one value a row. A range of clusters has not."""
    return all(isinstance(value, Sequence) and len(value) == len(item.keys) for value in item.inputs.values())


def quarantine_killers(
    item: WorkItem,
    job: Job,
    output: Output,
    attempt: Callable[[WorkItem], list[Manifest] | Lost],
    first: Lost | None = None,
) -> list[Manifest]:
    """Run an item that may kill its worker; return manifests of its good rows and of a quarantine row for each killer.

    ``attempt`` runs a part in a separate process; ``first`` is what became of the whole item there. A job may define
    ``poisoned(item) -> list[Part]``: what else to write for the killers, so that they are not tried again. Raises
    PairmillError with the remedy where single rows are not to blame.
    """
    name = type(job).__name__
    try:
        found = isolate(item, attempt, first)
    except PairmillError as error:
        raise PairmillError(
            f"a worker process died while it ran {name} (killed, or out of memory): {error}; what was finished is "
            "committed. Run the same command again; if it dies again, use fewer workers (--workers, or "
            "compute.workers in Prefect)."
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
