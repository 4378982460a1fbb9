"""Run a job over work items, on a local process pool or on Ray.

A stage is a *job*, a picklable callable ``item -> parts`` that reads a work item's rows, works, and returns the rows of
each table it fills, and rounds of work items (``catalog.pending.item``). The runner writes each part as one Parquet
file under the run's id and streams back one manifest a file, in the order in which items finish.

Two placements give equal files: a pool of processes of this machine for small rounds (`tasks.run.small_rounds`), else
Ray Data, whose rows are the work items themselves: its Parquet datasource reads a small dataset as one task, items as
rows keep every worker busy. A worker on CPUs holds one shard at a time, one with a model on a
device a few, so memory is bounded by the shards and the model, whatever the length of the list.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import TracebackType

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run import pool
from pairmill.tasks.run.model_job import ModelJob
from pairmill.tasks.run.on_ray import OnRay, started
from pairmill.tasks.run.partition import Job, Output
from pairmill.tasks.run.placement import Placement
from pairmill.tasks.run.resources import (
    Node,
    Resources,
    at_a_server,
    devices_by_worker,
    places,
    refusal,
    resources,
    this_machine,
)
from pairmill.tasks.run.small_rounds import is_small, may_stay_here
from pairmill.tasks.run.small_shards import join_small
from pairmill.tasks.run.worker import JobWorker

# How long a cluster may lack what one worker asks for: a machine may be coming. Others see it within 4 s.
PATIENCE_SECONDS = 20.0


def _not_shown(text: str) -> None:
    return None


class Stage:
    """A job and where it runs, for all its rounds: use it in a ``with`` statement.

    ``show(text)`` is called when the stage waits for a machine of a cluster, and with '' when it does no longer.
    """

    def __init__(self, job: Job, placement: Placement, show: Callable[[str], None] = _not_shown) -> None:
        self._job, self._placement, self._show = job, placement, show
        self._ray: OnRay | None = None

    @property
    def model(self) -> str:
        """The recipe's name of the model that the job runs, '' without one."""
        return getattr(self._job, "model", "")

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._ray is not None:
            self._ray.close()

    def run(self, items: Sequence[WorkItem], output: Output) -> Iterator[list[Manifest]]:
        """Run the job on every item and yield each item's manifests (one a file) in the order in which items finish.

        The files of one item belong to one transaction: half a shard must never count. A job turns bad rows into
        quarantine rows itself; a row that kills its worker process (native crash, out of memory) or that it never ends
        with is found and quarantined as ``poison`` or ``timeout``. Raises what the job raises; what was yielded before
        stays committed. Raises PairmillError when workers die of more than single rows.
        """
        if not items:
            return iter(())
        if self._stays_here(items):
            return self._in_pool(items, output)
        return self._on_ray().run(items, output)

    def sized(self, items: Sequence[WorkItem]) -> Sequence[WorkItem]:
        """Return the items as the stage is best given them: small shards joined where a device or a server works at
        many rows at once. Elsewhere a batch is of one shard, whose values so depend on nothing else."""
        if not items or not isinstance(self._job, ModelJob):
            return items
        nodes = [this_machine()] if self._stays_here(items) else started(self._placement)
        asked = self._asked(nodes)
        if not asked.gpus and not getattr(self._job, "max_in_flight", 0):
            return items
        return join_small(items, self._job.item_rows, places(asked, nodes))

    def _stays_here(self, items: Sequence[WorkItem]) -> bool:
        """Whether the items are for this machine's own processes: unless workers on Ray have the stage already."""
        placement = self._placement
        if self._ray is not None or not may_stay_here(placement) or not is_small(items, placement, bool(self.model)):
            return False
        return not (placement.is_cluster and self.model and self._asked(started(placement)).gpus)

    def _in_pool(self, items: Sequence[WorkItem], output: Output) -> Iterator[list[Manifest]]:
        here = this_machine()
        asked = self._asked([here])
        if asked.gpus > here.gpus:  # CPUs are shared here, none is lent
            raise PairmillError(refusal(asked, [here]))
        most = min(asked.most, self._placement.n_workers) if self._placement.is_cluster else asked.most
        least = 0 if asked.gpus else asked.least
        light = getattr(self._job, "is_light", False)
        shape = pool.PoolShape(most, devices_by_worker(asked.gpus), asked.lanes, least, light)
        return pool.run_in_pool(items, self._worker(asked), output, shape)

    def _on_ray(self) -> OnRay:
        if self._ray is None:
            asked = self._asked(started(self._placement))
            patience = PATIENCE_SECONDS if self._placement.is_cluster else 0.0
            self._ray = OnRay(self._worker(asked), asked, patience, self._show)
        return self._ray

    def _asked(self, nodes: list[Node]) -> Resources:
        """Return what a worker takes, by the recipe's name of the model that the job runs, if any. Only a job in halves
        can be fed."""
        placement, model = self._placement, self.model
        if getattr(self._job, "max_in_flight", 0):
            placement = replace(placement, models={model: at_a_server(placement.pool_of(model), nodes)})
        elif not isinstance(self._job, ModelJob):
            placement = replace(placement, models={model: replace(placement.pool_of(model), feeders=0)})
        return resources(placement, model, nodes)

    def _worker(self, asked: Resources) -> JobWorker:
        return JobWorker(self._job, asked.lanes, asked.feeders, asked.share)
