"""Run a stage on Ray Data (the only file that imports Ray): its rows are work items, its actors have worker processes.

A dataset lives as long as its stage: work items come to it through a queue, round after round, so that a model is
loaded once a replica. Each actor only minds a worker process of its own (`tasks.run.process`), which a bad row may
kill: what that means is found out there, by the same code as on one machine. An actor itself is lost with its machine
alone, and its items then go to others, without blame.
"""

import atexit
import logging
import pickle
import queue
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.partition import Output
from pairmill.tasks.run.placement import Placement
from pairmill.tasks.run.pool import run_item
from pairmill.tasks.run.process import LOG, Process
from pairmill.tasks.run.resources import Node, Resources, refusal
from pairmill.tasks.run.waiting import Waiting
from pairmill.tasks.run.worker import ONE_THREAD, JobWorker

# How often it is looked whether machines can give what is asked for, and how long one that is there may say nothing.
LOOK_SECONDS, SILENT_SECONDS = 4.0, 15.0
# As often may an item's machine be lost before the item is what ends it.
MOST_TRIES = 5


def started(placement: Placement) -> list[Node]:
    """Start or join Ray, and return what each of its machines has."""
    import ray

    if not ray.is_initialized():
        is_local = not placement.is_cluster
        ray.init(
            # Without an address Ray attaches to whatever runs on this machine, or did: $RAY_ADDRESS, a file of one
            # that was killed.
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
    import ray

    alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [Node(has.get("CPU", 0.0), has.get("GPU", 0.0)) for has in alive]


class OnRay:
    """A stage on Ray, for all its rounds. Raises PairmillError when no machine has what one worker asks for, and none
    came for ``patience`` seconds. ``show`` is told what it waits for, as `Waiting` says it."""

    def __init__(self, worker: JobWorker, asked: Resources, patience: float, show: Callable[[str], None]) -> None:
        import ray

        self._waiting = Waiting(asked, show)
        self._room = _ResourceWait(asked, patience, self._waiting)
        self._room.wait()
        self._looked = time.monotonic()
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        self._queue: Any = ray.remote(_Queue).options(num_cpus=0, max_concurrency=8, label_selector=here).remote()
        self._dataset = _dataset(self._queue, pickle.dumps(worker), asked, here)
        self._results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        LOG.info("workers' logs are on each machine in %s/logs", _session_folder())
        threading.Thread(target=_collect, args=(self._dataset, self._results), name="ray", daemon=True).start()

    def run(self, items: Sequence[WorkItem], output: Output) -> Iterator[list[Manifest]]:
        """Run the items and yield each one's manifests as they finish. Raises what the job raises."""
        import ray

        waiting = {item.digest: pickle.dumps((item, output)) for item in items}
        ray.get(self._queue.put.remote(waiting))
        while waiting:
            self._look()
            try:
                name, made = self._results.get(timeout=1.0)
            except queue.Empty:
                continue
            if isinstance(made, BaseException):
                raise made
            if made is not None and waiting.pop(name, None):
                self._queue.finish.remote(name)
                yield made

    def close(self) -> None:
        """Let the workers end; what they still do is given up."""
        import ray

        self._waiting.end()
        ray.get(self._queue.close.remote())
        executor = getattr(self._dataset, "_current_executor", None)
        if executor is not None:
            executor.shutdown(force=True)

    def _look(self) -> None:
        """Look every few seconds for machines that were lost or are lacking."""
        import ray

        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        self._room.look()
        if lost := ray.get(self._queue.requeue_lost.remote()):
            LOG.warning("%d workers were lost with their machines; what they had is done by others", lost)


class _ResourceWait:
    """Whether machines have what one worker asks for: Ray would wait for it, without a word."""

    def __init__(self, asked: Resources, patience: float, waiting: Waiting) -> None:
        self._asked, self._patience, self._waiting = asked, patience, waiting
        self._short_since = 0.0

    def wait(self) -> None:
        """Wait until a machine has it, while an autoscaler that was asked launches one. Raises PairmillError."""
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
        """Tell whether a machine has it. Raises PairmillError when none has for a while, and none is being launched."""
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
    """Return where Ray keeps the files of its session, on every machine of it."""
    from ray._private import worker

    return getattr(worker._global_node, "_session_dir", "/tmp/ray/session_latest")


def _launching() -> int:
    """Count the machines that an autoscaler launches."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    return len(status.pending_nodes) + sum(each.count for each in status.pending_launches)


def _dataset(items: Any, payload: bytes, asked: Resources, here: dict[str, str]) -> Any:
    """Make the dataset: one task, on the machine of the run, hands out what comes to the queue; actors do it."""
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # an item is a block of its own: it is begun as soon as it is there
    context.max_errored_blocks = -1  # what a lost machine had is handed out again by the queue
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
        # A lost actor's items are not tried by itself again, which waits for a machine that may never come.
        max_restarts=0,
        max_task_retries=0,
    )


def _collect(dataset: Any, results: "queue.SimpleQueue[Any]") -> None:
    """Hand on what each item came to, until the dataset ends. Nothing is read ahead, or the last of a round would wait
    for the next round's."""
    try:
        for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
            for name, made in zip(batch["name"], batch["made"], strict=True):
                results.put((name, pickle.loads(made)))
    except BaseException as error:
        results.put(("", error))


class _Queue:
    """Hold, in a Ray actor of its own, the work items that are not done, and know who has which.

    Who says nothing for SILENT_SECONDS is lost, with its machine: what it had in hand is handed out again, and what may
    have waited for it is too. Whoever comes second to an item is told to leave it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._items: dict[str, bytes] = {}
        self._holders: dict[str, str] = {}
        self._tries: Counter[str] = Counter()
        self._heard: dict[str, float] = {}

    def put(self, items: dict[str, bytes]) -> None:
        with self._lock:
            self._items |= items
        for item in items.values():
            self._waiting.put(item)

    def take(self) -> bytes | None:
        """Wait for the next item; None when there will be no more."""
        return self._waiting.get()

    def begin(self, name: str, minder: str) -> int:
        """Note that ``minder`` begins with an item; return how often it was begun by now, 0 where it is to be left."""
        with self._lock:
            if name not in self._items or name in self._holders:
                return 0
            self._holders[name] = minder
            self._tries[name] += 1
            return self._tries[name]

    def finish(self, name: str) -> None:
        """Note that the run has what an item came to."""
        with self._lock:
            self._items.pop(name, None)
            self._holders.pop(name, None)

    def hear(self, minder: str) -> None:
        """Note that ``minder`` is there."""
        self._heard[minder] = time.monotonic()

    def requeue_lost(self) -> int:
        """Hand out again what the lost have, and what may wait for them; return how many minders were lost."""
        limit = time.monotonic() - SILENT_SECONDS
        with self._lock:
            lost = {minder for minder, at in list(self._heard.items()) if at < limit}
            for minder in lost:
                del self._heard[minder]
            for name in [name for name, holder in self._holders.items() if holder in lost]:
                del self._holders[name]
            again = [item for name, item in self._items.items() if name not in self._holders] if lost else []
        for item in again:
            self._waiting.put(item)
        return len(lost)

    def close(self) -> None:
        with self._lock:
            self._items.clear()
        while not self._waiting.empty():
            self._waiting.get()
        self._waiting.put(None)


def _hand_out(_: Any, items: Any) -> Iterator[dict]:
    """Yield the items of a queue, each as a row, until it is closed."""
    import ray

    while (item := ray.get(items.take.remote())) is not None:
        yield {"item": [item]}


class _Supervisor:
    """Ray actor that has a worker process do its items, and outlives it."""

    def __init__(self, items: Any, payload: bytes, environment: dict[str, str]) -> None:
        self._items, self._payload, self._worker = items, payload, pickle.loads(payload)
        self._process = Process(environment, is_forked=False)  # a fork server for one would hold 0.3 GB more
        self._name = uuid.uuid4().hex
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def _send_heartbeats(self) -> None:
        """Say for ever that this actor is there."""
        while True:
            self._items.hear.remote(self._name)
            time.sleep(SILENT_SECONDS / 5)

    def __call__(self, batch: dict) -> dict:
        names, made = [], []
        for row in batch["item"]:
            item, output = pickle.loads(row)
            names.append(item.digest)
            made.append(pickle.dumps(self._outcome(item, output)))
        return {"name": names, "made": made}

    def _outcome(self, item: WorkItem, output: Output) -> list[Manifest] | BaseException | None:
        """Return what an item came to, None where another has it. An exception is handed back: raised here, Ray would
        count it as one lost block of any number."""
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
            return run_item(self._process, self._worker, self._payload, item, output)
        except Exception as error:
            return error
