"""Find the rows that kill a worker: try an item alone, then its halves, until only the killers are left."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from catalog.lake.error import PairmillError
from catalog.pending.item import WorkItem
from catalog.write.commit import Manifest
from ops.fault import Fault
from tasks.run.partition import Job, Output, Part, write_parts
from tasks.run.rows import quarantine

Result = TypeVar("Result")

# A killer must kill twice by itself: once may have been the machine, out of memory for another's sake.
DEATHS_PER_KILLER = 2
# More killers in one item than this are no bad rows: a library or the machine is at fault, and all would go.
MAX_KILLERS = 8


@dataclass
class Isolated(Generic[Result]):
    """``results`` of the parts that worked, ``killers`` the keys that did not survive on their own."""

    results: list[Result] = field(default_factory=list)
    killers: list[str] = field(default_factory=list)


def isolate(item: WorkItem, attempt: Callable[[WorkItem], Result | None]) -> Isolated[Result]:
    """Bisect ``item`` with ``attempt``, which gives None when the worker died. Some log2(n) deaths a killer.

    PairmillError when the item cannot be divided into rows, when none of several rows survives, or when too many kill.
    """
    found: Isolated[Result] = Isolated()
    waiting = [item]
    while waiting:
        part = waiting.pop()
        tries = DEATHS_PER_KILLER if len(part.keys) == 1 else 1
        result = next((done for done in (attempt(part) for _ in range(tries)) if done is not None), None)
        if result is not None:
            found.results.append(result)
        elif len(part.keys) > 1 and _is_by_row(part):
            middle = len(part.keys) // 2
            waiting += [part.only(part.keys[middle:]), part.only(part.keys[:middle])]
        elif len(part.keys) == 1 and _is_by_row(part) and len(found.killers) < MAX_KILLERS:
            found.killers.append(part.keys[0])
        else:
            raise PairmillError(f"shard {item.shard}: worker processes die again and again ({len(part.keys)} rows)")
    if len(item.keys) > 1 and not found.results:
        raise PairmillError(f"shard {item.shard}: each of its {len(item.keys)} rows kills a worker process")
    return found


def _is_by_row(item: WorkItem) -> bool:
    """Whether the item's inputs are a value a row; a range of clusters, say, cannot be taken apart here."""
    return all(isinstance(value, Sequence) and len(value) == len(item.keys) for value in item.inputs.values())


def quarantine_killers(
    item: WorkItem, job: Job, output: Output, attempt: Callable[[WorkItem], list[Manifest] | None]
) -> list[Manifest]:
    """The manifests of an item that may kill its worker: its good rows, and a quarantine row for each killer.

    ``attempt`` works on a part in a process of its own and gives None when that died. A job may say by
    ``poisoned(item) -> list[Part]`` what else to write for the killers, so that they are not tried again.
    """
    name = type(job).__name__
    try:
        found = isolate(item, attempt)
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
    faults = [Fault(key, "poison", f"a worker process that ran {name} on it alone died") for key in names]
    parts = [Part("quarantine", quarantine(names, [""] * len(names), getattr(job, "stage", name), faults))]
    killers = item.only(found.killers)
    parts += getattr(job, "poisoned", lambda _: [])(killers)
    return manifests + write_parts(parts, killers, output)
