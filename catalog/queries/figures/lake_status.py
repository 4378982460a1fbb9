"""Describe a lake at one moment: its rows, datasets, writer, and last runs with the token usage of their steps."""

from dataclasses import dataclass, replace

from pairmill.catalog.lake import schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import Holder, holder_of
from pairmill.catalog.queries.datasets import PublishedVersion, newest_of_each, published_version
from pairmill.catalog.queries.figures.canary_rates import CanaryRate, canary_rates
from pairmill.catalog.write import runs
from pairmill.catalog.write.recorded_removals import unfinished_notice

COUNTED = ("documents", "images", "sentences", "quarantine")
RUNS = 5
READS = 5  # of the lake's state, while runs begin and end


@dataclass(frozen=True)
class StepUsage:
    """Token usage of one step of one run.

    ``seconds`` are summed over replicas. ``cost`` uses the prices configured for the run, 0 without prices.
    """

    run_id: str
    step: str
    rows: int
    seconds: float
    prompt_tokens: int
    tokens: int
    discarded_tokens: int
    retries: int
    cost: float

    @property
    def tokens_a_second(self) -> float:
        """Tokens generated per second by one replica; 0 if no time is recorded."""
        return self.tokens / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class LakeStatus:
    """State of a lake at one moment: its address, the format of its tables, and their numbers of ``rows``.

    ``datasets``: the newest version of each. ``canaries``: how many wrong texts the rules on pairs of a NAME@VERSION
    accept. ``writer``: the process that holds the lease; None if nobody does. ``left_by``: a killed writer, whose lease
    the next run takes over; else None. ``runs``: the last ones, the newest first; the state of a run whose process is
    gone is 'killed'. ``usage``: tokens of these runs by step. ``unfinished``: a line on removals whose bytes are still
    to be erased, '' if there are none.
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
    unfinished: str


def lake_status(lake: Lake) -> LakeStatus:
    """Read the state of a lake: the lease, and everything else at one snapshot.

    Reads again if a run begins or ends meanwhile: a run that has just begun would seem killed.
    """
    holder = holder_of(lake.metadata)
    for _ in range(READS):
        with lake.one_snapshot():
            found = _without_writer(lake)
        before, holder = holder, holder_of(lake.metadata)
        if (before and before.token) == (holder and holder.token):
            break
    writer = holder if holder and not holder.is_dead() else None
    works = writer.run_id if writer else ""
    shown = [
        replace(run, state="killed") if run.state == "running" and run.run_id != works else run for run in found.runs
    ]
    return replace(found, writer=writer, left_by=None if writer else holder, runs=shown)


def _without_writer(lake: Lake) -> LakeStatus:
    """Read all but the lease."""
    latest, newest = runs.latest(lake, RUNS), newest_of_each(lake)
    return LakeStatus(
        lake=lake.uri,
        format=schema.version(lake).format,
        rows=counts(lake),
        datasets=[published_version(lake, each) for each in newest],
        canaries={str(each): canary_rates(lake, each) for each in newest},
        writer=None,
        left_by=None,
        runs=latest,
        usage=by_step(lake, run_ids=tuple(run.run_id for run in latest)) if latest else [],
        unfinished=unfinished_notice(lake),
    )


def counts(lake: Lake) -> dict[str, int]:
    """Return table -> number of rows for the tables COUNTED of a lake."""
    return {table: lake.query(f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED}


def by_step(lake: Lake, upto: int | None = None, run_ids: tuple[str, ...] = ()) -> list[StepUsage]:
    """Return token usage by run and step, in the order of the steps' first commits.

    Restricted to commits up to ``upto``, and to ``run_ids`` if any are given.
    """
    mine = "AND list_contains(?, u.run_id)" if run_ids else ""
    sql = f"""SELECT u.run_id, c.step, sum(u.rows), sum(u.seconds), sum(u.prompt_tokens), sum(u.tokens),
        sum(u.discarded_tokens), sum(u.retries), sum(u.cost)
        FROM usage u JOIN commits c ON c."commit" = u."commit"
        WHERE (? IS NULL OR u."commit" <= ?) {mine}
        GROUP BY u.run_id, c.step ORDER BY min(u."commit")"""
    found = lake.query(sql, (upto, upto, *([list(run_ids)] if run_ids else [])))
    return [
        StepUsage(run, step, int(rows), float(seconds), *(int(n) for n in counts), cost=float(cost))
        for run, step, rows, seconds, *counts, cost in found
    ]
