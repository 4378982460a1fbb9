"""Find the rows that kill a worker process, by bisection, and quarantine them as ``poison``."""

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


@dataclass
class Isolated(Generic[Result]):
    """What a bisection found: ``results`` of the parts that ran, ``killers`` the keys of rows that kill a worker."""

    results: list[Result] = field(default_factory=list)
    killers: list[str] = field(default_factory=list)


def isolate(item: WorkItem, attempt: Callable[[WorkItem], Result | None]) -> Isolated[Result]:
    """Bisect ``item`` until only killing rows are left; some log2(n) worker deaths a killer.

    ``attempt`` returns None when its worker died. Raises PairmillError when the item cannot be divided into rows, when
    each of several rows kills, or when over MAX_KILLERS do.
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
    """Whether the item can be divided: each input has one value a row. A range of clusters has not."""
    return all(isinstance(value, Sequence) and len(value) == len(item.keys) for value in item.inputs.values())


def quarantine_killers(
    item: WorkItem, job: Job, output: Output, attempt: Callable[[WorkItem], list[Manifest] | None]
) -> list[Manifest]:
    """Run an item that may kill its worker; return manifests of its good rows and of a quarantine row for each killer.

    ``attempt`` runs a part in a separate process and returns None when that died. A job may define ``poisoned(item) ->
    list[Part]``: what else to write for the killers, so that they are not tried again. Raises PairmillError with the
    remedy where single rows are not to blame.
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
