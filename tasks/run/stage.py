"""Run a job over work items, on a local process pool or on Ray.

A stage is a *job*, a picklable callable ``item -> parts``, and its rounds of work items (``catalog.pending.item``). The
job reads a work item's rows and returns rows of each table that it fills. The runner writes each part as one Parquet
file under the run's id and yields one manifest a file, in the order in which items finish.

Both placements write equal files. A run without Ray uses a process pool of this machine. With Ray every round runs on
Ray Data, whose rows are the work items: Ray's Parquet datasource reads a small dataset as one task, while items as rows
keep every worker busy. A CPU worker has one shard in memory, a worker with a model on a device a few. Memory is
therefore bounded by the shards and the model, whatever the length of the work list.

A stage on Ray takes some 20 s on two cores, however small: each actor starts a worker that imports torch. The pool
takes 0.3 to 5 s. A run that says 'pool' has its small rounds there. On a cluster this machine must then have memory and
access to the workers' storage: an image that is not found would be quarantined. A model on a cluster's GPU stays there.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from pairmill.catalog.pending.item import WorkItem, group_neighbours, join
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.cluster.on_ray import Fleet, Fleets
from pairmill.tasks.run.cluster.ray_nodes import start_ray
from pairmill.tasks.run.items.model_job import ModelJob
from pairmill.tasks.run.items.partition import Job, Output
from pairmill.tasks.run.place import resources
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.pool import pool
from pairmill.tasks.run.pool.process import LOG, Report
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.pool.worker import JobWorker

# Seconds to wait for a cluster machine with the resources of one worker. A wait is visible to others within 4 s.
PATIENCE_SECONDS = 20.0
# On this machine: at 0.7 ms a row (the cheapest sentence scores) this many rows take as long as Ray takes to start.
SMALL_ROWS = 50_000
# On a cluster's driver, for jobs without a model: at 10 ms a row (decoding an image) a CPU does as many in that time.
CLUSTER_ROWS = 3_000
# Rows below which full batches are worth more than an item for every replica.
LEAST_ROWS = 64


def cpu_workers(placement: Placement) -> int:
    """Return the maximum number of CPU workers at once: on this machine, or on the cluster's current machines."""
    if placement.workers or not placement.is_cluster:
        return placement.n_workers
    return max(1, sum(int(node.cpus) for node in start_ray(placement)))


class JobStage:
    """A job and its workers, for all its rounds. Use it in a ``with`` statement.

    ``show(text)`` is called when the stage waits for a machine of a cluster, and with '' when the wait ends.
    ``stalled(report)`` is called when the watchdog has ended workers. ``name`` is the step, by which Ray names a stage
    without a model. ``fleets`` has the idle workers of earlier stages.
    """

    def __init__(
        self,
        job: Job,
        placement: Placement,
        show: Callable[[str], None] = lambda text: None,
        stalled: Callable[[str], None] = lambda report: None,
        name: str = "",
        fleets: Fleets | None = None,
    ) -> None:
        self._name = name or type(job).__name__
        self._job, self._placement, self._show, self._stalled = job, placement, show, stalled
        self._fleets = fleets or Fleets()
        self._fleet: tuple[resources.Resources, Fleet] | None = None
        self._job_bytes, self._is_idle = b"", True
        self.gpus = 0.0  # of one worker, known once a round runs

    @property
    def model(self) -> str:
        """The recipe's name of the job's model, '' without one."""
        return getattr(self._job, "model", "")

    @property
    def unit(self) -> str:
        """Name of the job's rows in the plural, such as 'pictures'; '' if the job has none."""
        return getattr(self._job, "unit", "")

    def __enter__(self) -> "JobStage":
        return self

    def __exit__(self, *_: object) -> None:
        if self._fleet is not None:
            self._fleets.give_back(self.model, *self._fleet, self._is_idle)

    def run(
        self, items: Sequence[WorkItem], output: Output, show_ahead: Report = lambda rows: None
    ) -> Iterator[list[Manifest]]:
        """Run the job on every item; yield each item's manifests (one a file) in the order in which items finish.

        The manifests of one item belong in one transaction: a partial shard must never be committed. A job converts bad
        rows to quarantine rows itself. A row that kills its worker process (native crash, out of memory), or that never
        ends, is found and quarantined as ``poison`` or ``timeout``. Raises the job's errors; items yielded before stay
        valid. Raises PairmillError when more than single rows kill workers. ``show_ahead`` is called every few seconds
        with the number of finished rows of unfinished items, except on Ray.
        """
        if not items:
            return iter(())
        if self._stays_here(items):
            return self._in_pool(items, output, show_ahead)
        return self._on_ray(self._take_fleet(len(items)), items, output)

    def sized(self, items: Sequence[WorkItem]) -> Sequence[WorkItem]:
        """Return the items, with small shards joined if a GPU or a server processes many rows at once.

        On CPUs they stay as they are: a batch then has rows of one shard only, so its values depend on nothing else.
        """
        if not items or not isinstance(self._job, ModelJob):
            return items
        nodes = [resources.this_machine()] if self._stays_here(items) else start_ray(self._placement)
        asked = self._compute_resources(nodes)
        if not asked.gpus and not getattr(self._job, "max_in_flight", 0):
            return items
        return join_small(items, self._job.item_rows, resources.count_in_flight(asked, nodes))

    def _stays_here(self, items: Sequence[WorkItem]) -> bool:
        """Return whether the items run on this machine's pool. False once Ray workers run the stage."""
        placement = self._placement
        if not placement.ray_address:
            return True
        is_asked = placement.small_rounds == "pool" and self._fleet is None
        if not is_asked or not is_small(items, placement, bool(self.model)):
            return False
        return not (placement.is_cluster and self.model and self._compute_resources(start_ray(placement)).gpus)

    def _in_pool(self, items: Sequence[WorkItem], output: Output, show_ahead: Report) -> Iterator[list[Manifest]]:
        """Run the items on this machine's process pool."""
        here = resources.this_machine()
        asked = self._compute_resources([here])
        self.gpus = asked.gpus
        if asked.gpus > here.gpus:  # CPUs need no check: here workers share them
            raise PairmillError(resources.refusal(asked, [here]))
        most = min(asked.most, self._placement.n_workers) if self._placement.is_cluster else asked.most
        least = 0 if asked.gpus else asked.least
        shape = pool.PoolShape(most, resources.devices_by_worker(asked.gpus), asked.lanes, least)
        return pool.run_in_pool(items, self._worker(asked), output, shape, show_ahead, self._watchdog())

    def _watchdog(self) -> Watchdog:
        return Watchdog(self._placement.stall_minutes, show=self._tell)

    def _tell(self, text: str) -> None:
        """Show that the stage stalls, and log it once."""
        if text:
            LOG.warning("%s", text)
            self._stalled(text)
        self._show(text)

    def _on_ray(self, fleet: Fleet, items: Sequence[WorkItem], output: Output) -> Iterator[list[Manifest]]:
        """Run the items by the stage's fleet."""
        self._is_idle = False
        yield from fleet.run(self._job_bytes, items, output, self._watchdog())
        self._is_idle = True

    def _take_fleet(self, items: int) -> Fleet:
        """Return the stage's fleet, taken over or started at the first call, when it has ``items`` items."""
        if self._fleet is None:
            asked = self._compute_resources(start_ray(self._placement))
            patience = PATIENCE_SECONDS if self._placement.is_cluster else 0.0
            name = f"model {self.model}" if self.model else self._name  # a fleet of a model may serve other steps
            new = partial(Fleet, asked, patience, name, self._show)
            fleet = self._fleets.take(self.model, asked, items, new)
            fleet.show = self._show
            self._fleet, self._job_bytes, self.gpus = (asked, fleet), pickle.dumps(self._worker(asked)), asked.gpus
        return self._fleet[1]

    def _compute_resources(self, nodes: list[resources.Node]) -> resources.Resources:
        """Compute the resources of a worker by the job's model. Only a model job in parts can have feeders."""
        placement, model = self._placement, self.model
        if getattr(self._job, "max_in_flight", 0):
            placement = replace(placement, models={model: resources.pool_at_server(placement.pool_of(model), nodes)})
        elif not isinstance(self._job, ModelJob):
            placement = replace(placement, models={model: replace(placement.pool_of(model), feeders=0)})
        return resources.resources(placement, model, nodes)

    def _worker(self, asked: resources.Resources) -> JobWorker:
        """Return the job as a worker with these resources runs it."""
        return JobWorker(self._job, asked.lanes, asked.feeders, asked.share)


def is_small(items: Sequence[WorkItem], placement: Placement, has_model: bool) -> bool:
    """Return whether this machine runs a round of ``items`` in no more time than Ray takes to start.

    An item is never split, so a round with at most one item per local worker takes as long on a cluster.
    """
    rows = sum(len(item.keys) for item in items)
    if not placement.is_cluster:
        return rows <= SMALL_ROWS
    return len(items) <= placement.n_workers or (not has_model and rows <= CLUSTER_ROWS)


def join_small(items: Sequence[WorkItem], most_rows: int, workers: int) -> list[WorkItem]:
    """Join neighbouring items of small shards to items of at most ``most_rows`` rows, for full batches.

    A late wave requests texts for a few images in each of thousands of shards, and a daily ingest brings small shards.
    Of 100 shards of two images, a server that takes half a second a request answered 10 to 11 images a second item by
    item, and 24 to 38 with joined items (two CPUs, in turn).

    At least one item is left for each of ``workers``, unless items would then have fewer than LEAST_ROWS rows. Joins
    only items that lack the same scores. An item larger than the limit stays as it is. The output is still written as
    one partition per shard (`items.partition`), so a killed run resumes whether or not its items were joined.
    """
    total = sum(len(item.keys) for item in items)
    most = min(most_rows, max(LEAST_ROWS, -(-total // max(1, workers))))
    return [join(group) for group in group_neighbours(items, most)]
