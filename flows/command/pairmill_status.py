"""Implement `pairmill status`: show a lake's content, its datasets, its writer and its last runs."""

from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console

from pairmill.catalog.lake import schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import Holder, holder_of
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.figures import holdings
from pairmill.catalog.queries.figures.canary_rates import CanaryRate, canary_rates
from pairmill.catalog.queries.figures.token_usage import StepUsage, by_step
from pairmill.catalog.terms.demo_weights import MARK
from pairmill.catalog.write import runs
from pairmill.flows.command.terminal import console, shown, table

RUNS = 5
READS = 5  # of the lake's state, while runs begin and end


@dataclass(frozen=True)
class LakeState:
    """One snapshot of a lake: rows by table, the newest version of each dataset, the last runs and their tokens.

    ``demo`` are the names of the datasets that the small shipped models made. ``canaries``: dataset -> how many wrong
    texts the rules on pairs of its newest version accept.
    """

    counts: dict[str, int]
    newest: list[datasets.Dataset]
    demo: set[str]
    runs: list[runs.Run]
    usage: list[StepUsage]
    canaries: dict[str, list[CanaryRate]]


def status(args: Namespace) -> int:
    """Print the lake's state."""
    with create_or_open(args.lake, read_only=True) as lake:
        _print_lake(lake, console())
    return 0


def _print_lake(lake: Lake, screen: Console) -> None:
    """Print the lake's row counts, datasets, lease and last runs."""
    holder, state = _state(lake)
    counts = [f"{n:,} {table}" for table, n in state.counts.items()]
    screen.print(f"[bold]lake {shown(lake.uri)}[/]  format {schema.version(lake).format}, {', '.join(counts)}")
    if not state.newest:
        screen.print("no dataset yet; `pairmill run RECIPE --dry-run` counts what a run would do.")
    for dataset in state.newest:
        by = f", by [yellow]{MARK}[/]" if dataset.name in state.demo else ""
        screen.print(f"dataset  {shown(dataset)}  {dataset.n_pairs:,} pairs, {_time(dataset.created_at)}{by}")
        for rate in () if dataset.name in state.demo else state.canaries[dataset.name]:
            screen.print(f"rule     {shown(rate)}")
    writes = holder is not None and not holder.is_dead()
    left = f" (left behind by {shown(holder)})" if holder and not writes else ""
    screen.print(f"lease    {shown(holder)}" if writes else f"lease    free: nobody writes{left}")
    if holder and writes and holder.waiting:
        screen.print(f"now      {shown(holder.waiting)}")
    for run in state.runs:
        killed = run.state == "running" and not (writes and holder and holder.run_id == run.run_id)
        ended = "killed" if killed else run.state
        spent = f" in {(run.finished_at - run.started_at).total_seconds():.0f} s" if run.finished_at else ""
        said = f": {run.error[:200]}" if run.error else ""
        screen.print(
            f"run      {run.run_id}  {shown(f'{run.flow} {run.recipe}')}, {_time(run.started_at)}, "
            f"{ended}{spent}{shown(said)}"
        )
        for note in run.notes:
            screen.print(f"note     {shown(note)}")
    _print_usage(state.usage, screen)


def _state(lake: Lake) -> tuple[Holder | None, LakeState]:
    """Read the lease, and the rest at one snapshot.

    Read again if a run begins or ends meanwhile: a run that has just begun would seem killed.
    """
    holder = holder_of(lake.metadata)
    for _ in range(READS):
        with lake.one_snapshot():
            latest = runs.latest(lake, RUNS)
            usage = by_step(lake, run_ids=tuple(run.run_id for run in latest)) if latest else []
            newest = _newest(lake)
            demo = {each.name for each in newest if each.demo_weights(lake)}
            rates = {each.name: canary_rates(lake, each) for each in newest}
            state = LakeState(holdings.counts(lake), newest, demo, latest, usage, rates)
        before, holder = holder, holder_of(lake.metadata)
        if (before and before.token) == (holder and holder.token):
            break
    return holder, state


def _print_usage(found: list[StepUsage], screen: Console) -> None:
    """Print the tokens and cost of generated texts in the last runs, if there are any."""
    if not found:
        return
    texts = table("\ntexts made by these runs", ["run", "step"], ["texts", "tokens", "tokens/s", "retries", "cost"], [])
    for each in found:
        cost = f"{each.cost:,.4f}" if each.cost else "·"
        rate = f"{each.tokens_a_second:,.1f}"
        texts.add_row(
            each.run_id[:8], shown(each.step), f"{each.rows:,}", f"{each.tokens:,}", rate, f"{each.retries:,}", cost
        )
    screen.print(texts)


def _newest(lake: Lake) -> list[datasets.Dataset]:
    """Return the newest version of each dataset."""
    return list({each.name: each for each in datasets.published(lake)}.values())


def _time(at: datetime) -> str:
    """Format a time to the second."""
    return at.isoformat(" ", "seconds")
