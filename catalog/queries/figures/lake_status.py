"""Describe a lake at one moment: its rows, datasets, writer and last runs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from pairmill.catalog.lake import schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import Holder, holder_of
from pairmill.catalog.queries.datasets import PublishedVersion, newest_of_each, published_version
from pairmill.catalog.queries.figures.canary_rates import CanaryRate, canary_rates
from pairmill.catalog.queries.figures.token_usage import StepUsage, by_step
from pairmill.catalog.write import runs

COUNTED = ("documents", "images", "sentences", "quarantine")
RUNS = 5
READS = 5  # of the lake's state, while runs begin and end


@dataclass(frozen=True)
class LakeStatus:
    """One snapshot of a lake.

    Attributes:
        lake: Its address.
        format: The format of its tables.
        rows: Table -> number of rows.
        datasets: The newest version of each dataset.
        canaries: NAME@VERSION -> how many wrong texts the rules on pairs of this version accept.
        writer: The process that writes to it; None if nobody does.
        left_by: A writer that was killed, whose lease the next run takes over.
        runs: The last runs, the newest first; the state of a run whose process is gone is 'killed'.
        usage: Tokens of these runs by step.
    """

    lake: str
    format: int
    rows: dict[str, int]
    datasets: list[PublishedVersion]
    canaries: dict[str, list[CanaryRate]]
    writer: Holder | None
    left_by: Holder | None
    runs: list[runs.Run]
    usage: list[StepUsage]


def lake_status(lake: Lake) -> LakeStatus:
    """Read the lease, and the rest at one snapshot.

    Reads again if a run begins or ends meanwhile: a run that has just begun would seem killed.
    """
    holder = holder_of(lake.metadata)
    for _ in range(READS):
        with lake.one_snapshot():
            found = _status_beside(lake)
        before, holder = holder, holder_of(lake.metadata)
        if (before and before.token) == (holder and holder.token):
            break
    return found(holder)


def _status_beside(lake: Lake) -> Callable[[Holder | None], LakeStatus]:
    """Read all but the lease; the status is made with it."""
    latest = runs.latest(lake, RUNS)
    usage = by_step(lake, run_ids=tuple(run.run_id for run in latest)) if latest else []
    newest = newest_of_each(lake)
    rates = {str(each): canary_rates(lake, each) for each in newest}
    described, rows = [published_version(lake, each) for each in newest], counts(lake)
    form = schema.version(lake).format

    def with_lease(holder: Holder | None) -> LakeStatus:
        writer = holder if holder and not holder.is_dead() else None
        works = writer.run_id if writer else ""
        shown = [
            replace(run, state="killed") if run.state == "running" and run.run_id != works else run for run in latest
        ]
        left_by = None if writer else holder
        return LakeStatus(lake.uri, form, rows, described, rates, writer, left_by, shown, usage)

    return with_lease


def counts(lake: Lake) -> dict[str, int]:
    """Return table -> number of rows, for the tables COUNTED."""
    return {table: lake.query(f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED}
