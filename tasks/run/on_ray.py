"""Run a stage on Ray Data: each dataset row is a work item, each actor supervises a worker process.

No other module imports Ray.

A dataset lives as long as its stage. Work items reach it through a queue, round after round, so that each replica loads
its model once. An actor only supervises its own worker process (`tasks.run.process`), which a bad row may kill; the
code that then finds the bad row is the same as on one machine. An actor itself is lost only with its machine. Its items
then go to other actors, and no row is blamed.
"""

import atexit
import functools
import logging
import pickle
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.finished_rows import RowsAhead
from pairmill.tasks.run.item_queue import SILENT_SECONDS, ItemQueue
from pairmill.tasks.run.partition import Output
from pairmill.tasks.run.placement import Placement
from pairmill.tasks.run.pool import run_item
from pairmill.tasks.run.process import LOG, Process
from pairmill.tasks.run.resources import Node, Resources, refusal
from pairmill.tasks.run.waiting import Waiting
from pairmill.tasks.run.watchdog import Watchdog
from pairmill.tasks.run.worker import ONE_THREAD, JobWorker, with_notes

# Seconds between checks for missing or lost machines.
LOOK_SECONDS = 4.0
# After this many lost machines an item itself is the suspect, and the run stops.
MOST_TRIES = 5


def started(placement: Placement) -> list[Node]:
    """Start Ray or join a cluster; return the CPUs and GPUs of each live machine."""
    import ray

    if not ray.is_initialized():
        is_local = not placement.is_cluster
        ray.init(
            # Without an address Ray attaches to a cluster named by $RAY_ADDRESS or by the file that a killed one left.
            address="local" if is_local else placement.ray_address,
            num_cpus=max(2, placement.n_workers) if is_local else None,
            include_dashboard=False if is_local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": ONE_THREAD},
        )
        atexit.register(ray.shutdown)
    return _nodes()


def _nodes() -> list[Node]:
    """Return the CPUs and GPUs of each live machine."""
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(has.get("CPU", 0.0), has.get("GPU", 0.0)) for has in alive]


class OnRay:
    """A stage on Ray, for all its rounds.

    Args:
        worker: The job, pickled once and sent to every actor.
        asked: The resources of one worker, and how many workers.
        patience: Seconds to wait for a machine that has ``asked`` while no autoscaler launches one.
        show: Called with the text of `Waiting` while the stage waits for a machine.

    Raises:
        PairmillError: No machine has the resources of one worker, and none joined for ``patience`` seconds.
    """

    def __init__(self, worker: JobWorker, asked: Resources, patience: float, show: Callable[[str], None]) -> None:
        import ray

        self._waiting = Waiting(asked, show)
        self._room = _ResourceWait(asked, patience, self._waiting)
        self._room.wait()
        self._looked = time.monotonic()
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        self._queue: Any = ray.remote(ItemQueue).options(num_cpus=0, max_concurrency=8, label_selector=here).remote()
        self._dataset = _dataset(self._queue, pickle.dumps(worker), asked, here)
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        LOG.info("workers' logs are on each machine in %s/logs", _session_folder())
        threading.Thread(target=_collect, args=(self._dataset, self._results), name="ray", daemon=True).start()

    def run(self, items: Sequence[WorkItem], output: Output, watchdog: Watchdog) -> Iterator[list[Manifest]]:
        """Run the items; yield the manifests of each as it finishes, with the notes of ``watchdog``.

        Raises what the job raises.
        """
        import ray

        waiting = {item.digest: pickle.dumps((item, output)) for item in items}
        ray.get(self._queue.put.remote(waiting))
        while waiting:
            self._look(watchdog)
            try:
                name, made = self._results.get(timeout=1.0)
            except queue.Empty:
                continue
            if isinstance(made, BaseException):
                raise made
            if made is not None and waiting.pop(name, None):
                self._queue.finish.remote(name)
                watchdog.saw(-1)
                yield with_notes(made, watchdog.take())

    def close(self) -> None:
        """Stop the actors and drop the items in flight."""
        import ray

        self._waiting.end()
        ray.get(self._queue.close.remote())
        executor = getattr(self._dataset, "_current_executor", None)
        if executor is not None:
            executor.shutdown(force=True)

    def _look(self, watchdog: Watchdog) -> None:
        """Check every LOOK_SECONDS whether machines are lost or missing, and whether workers hang."""
        import ray

        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        self._room.look()
        if lost := ray.get(self._queue.requeue_lost.remote()):
            LOG.warning("%d workers were lost with their machines; what they had is done by others", lost)
        rows, held = ray.get(self._queue.progress.remote())
        watchdog.saw(rows)
        watchdog.look([_FarWorker(self._queue, minder, text) for minder, text in held.items()])


@dataclass(frozen=True)
class _FarWorker:
    """A worker process behind an actor: what it last said to be working on. Its actor ends it at the next heartbeat."""

    queue: Any
    minder: str
    held: str

    def in_hand(self) -> str:
        """Return what the worker works on, '' if it has no work."""
        return self.held

    def end_hung(self) -> None:
        """Have the worker process ended."""
        self.queue.end_hung.remote(self.minder)


class _ResourceWait:
    """Check that some machine has the resources of one worker; without them Ray would wait silently."""

    def __init__(self, asked: Resources, patience: float, waiting: Waiting) -> None:
        self._asked, self._patience, self._waiting = asked, patience, waiting
        self._short_since = 0.0

    def wait(self) -> None:
        """Wait until a machine has the resources, after asking the autoscaler for them. Raises PairmillError."""
        from ray.autoscaler.sdk import request_resources

        if self._is_there():
            return
        request_resources(bundles=[{"CPU": self._asked.cpus, "GPU": self._asked.gpus}])
        try:
            while not self.look():
                time.sleep(LOOK_SECONDS / 4)
        finally:
            request_resources(bundles=[])
            self._waiting.end()

    def look(self) -> bool:
        """Return whether a machine has the resources.

        Raises PairmillError when none has had them for ``patience`` seconds and the autoscaler launches none.
        """
        now = time.monotonic()
        if self._is_there():
            self._short_since = 0.0
            self._waiting.end()
            return True
        launching = _launching()
        if launching or not self._short_since:
            self._short_since = now
        if now - self._short_since >= self._patience:
            raise PairmillError(refusal(self._asked, _nodes()))
        self._waiting.go_on(launching)
        return False

    def _is_there(self) -> bool:
        return not refusal(self._asked, _nodes())


def _session_folder() -> str:
    """Return the folder of Ray's session files; it has the same path on every machine."""
    from ray._private import worker

    return getattr(worker._global_node, "_session_dir", "/tmp/ray/session_latest")


def _launching() -> int:
    """Count the machines that an autoscaler is launching."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    return len(status.pending_nodes) + sum(each.count for each in status.pending_launches)


def _dataset(items: Any, payload: bytes, asked: Resources, here: dict[str, str]) -> Any:
    """Build the dataset: one task on the run's machine reads the queue, and an actor pool processes its items."""
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # one item a block: an actor starts it as soon as it is queued
    context.max_errored_blocks = -1  # unlimited: the queue redistributes the items of a lost machine
    context.max_consecutive_actor_init_deaths = 8  # a machine may be lost while an actor starts on it
    hand_out: Any = _hand_out
    source = ray.data.from_items([{"row": 0}]).map_batches(
        hand_out, batch_size=None, fn_kwargs={"items": items}, num_cpus=0, label_selector=here
    )
    return source.map_batches(
        _Supervisor,
        fn_constructor_args=(items, payload, {} if asked.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(
            min_size=asked.least,
            max_size=asked.most,
            max_concurrent_calls_per_actor=asked.lanes,
            enable_true_multi_threading=asked.lanes > 1,
        ),
        num_cpus=asked.cpus,
        num_gpus=asked.gpus,
        # Ray must not restart a lost actor: it would wait for a machine that may never join. The queue retries.
        max_restarts=0,
        max_task_retries=0,
    )


def _collect(dataset: Any, results: "queue.SimpleQueue[Any]") -> None:
    """Put each item's outcome into ``results``, until the dataset ends.

    Nothing is prefetched: the last item of a round would wait for the first of the next round.
    """
    try:
        for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
            for name, made in zip(batch["name"], batch["made"], strict=True):
                results.put((name, pickle.loads(made)))
    except BaseException as error:
        results.put(("", error))


def _hand_out(_: Any, items: Any) -> Iterator[dict]:
    """Yield each queued item as a row, until the queue is closed."""
    import ray

    while (item := ray.get(items.take.remote())) is not None:
        yield {"item": [item]}


class _Supervisor:
    """Ray actor that runs items in a worker process of its own and survives its death."""

    def __init__(self, items: Any, payload: bytes, environment: dict[str, str]) -> None:
        self._items, self._payload, self._worker = items, payload, pickle.loads(payload)
        self._process = Process(environment, is_forked=False)  # a fork server for a single worker costs 0.3 GB
        self._name, self._ahead = uuid.uuid4().hex, RowsAhead()
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def _send_heartbeats(self) -> None:
        """Send heartbeats for ever, one every SILENT_SECONDS / 5."""
        import ray

        host = ray.util.get_node_ip_address()
        while True:
            held = self._process.in_hand()
            told = self._ahead.total(), held and f"{held} on {host}"
            if ray.get(self._items.hear.remote(self._name, *told)):
                self._process.end_hung()
            time.sleep(SILENT_SECONDS / 5)

    def __call__(self, batch: dict) -> dict:
        names, made = [], []
        for row in batch["item"]:
            item, output = pickle.loads(row)
            names.append(item.digest)
            made.append(pickle.dumps(self._outcome(item, output)))
        return {"name": names, "made": made}

    def _outcome(self, item: WorkItem, output: Output) -> list[Manifest] | BaseException | None:
        """Run one item; return its manifests, the exception that it raised, or None if another actor runs the item.

        The exception is not raised: Ray is set to tolerate any number of failed blocks, so the run would never see it.
        """
        import ray

        tries: Any = ray.get(self._items.begin.remote(item.digest, self._name))
        if not tries:
            return None
        if tries > MOST_TRIES:
            return PairmillError(
                f"shard {item.shard}: each of {MOST_TRIES} machines that worked on {len(item.keys)} rows of it was "
                "lost; what was finished is committed. Look at the memory of these, then run the same command again."
            )
        try:
            report = functools.partial(self._ahead.add, item.digest)
            return run_item(self._process, self._worker, self._payload, item, output, report)
        except Exception as error:
            return error
        finally:
            self._ahead.end(item.digest)
