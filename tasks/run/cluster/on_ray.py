"""Run stages on Ray Data: each dataset row is a work item, each actor supervises a worker process.

A fleet is a dataset that does not end with its items: they reach it through a queue, round after round and step after
step, so that each replica loads its model once. An actor only supervises its own worker process (`pool.process`),
which a bad row may kill; the code that then finds the bad row is the same as on one machine. An actor itself is lost
only with its machine. Its items then go to other actors, and no row is blamed. A machine whose card has no room for the
model is left out by name.
"""

import logging
import pickle
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import ceil
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.cluster.item_queue import ItemQueue
from pairmill.tasks.run.cluster.ray_nodes import LOOK_SECONDS, ResourceWait, free, log_places
from pairmill.tasks.run.cluster.ray_supervisor import Supervisor, hand_out
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.resources import Resources, refusal, room
from pairmill.tasks.run.pool.process import LOG
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.pool.worker import with_notes

ENDED = (
    "Ray has ended the stage with items left: the machine of the run, or Ray's processes on it, are lost or were ended "
    "(for want of memory, as a rule). What was finished is committed. See Ray's logs, then run the same command again."
)

IDLE_SECONDS = 120.0  # of workers beside items that none of them has begun
START_SECONDS = 300.0  # without a worker, beside room for one: an actor starts in 20 s, on a busy machine in 90


class Fleet:
    """The actors that run a model's jobs on Ray, or one job without a model, for all rounds.

    Raises PairmillError if no machine has the resources of one worker, and none joined for ``patience`` seconds.

    ``asked``: the resources of one worker, and the number of workers. ``name``: the model or the step, by which Ray's
    dashboard and metrics name the operators and actors. ``show`` gets a text while the fleet waits for a machine, and
    '' at the end of the wait. Time in which an autoscaler launches a machine does not count as waiting.
    """

    def __init__(self, asked: Resources, patience: float, name: str, show: Callable[[str], None]) -> None:
        import ray

        self.show = show
        self._left_out, self._notes = set[str](), list[str]()
        self._unfit: Exception | None = None
        self._job, self._jobs, self._rounds = b"", 0, 0
        self._room = ResourceWait(asked, patience, lambda text: self.show(text))
        self._asked = asked
        self._room.wait()
        self._looked = self._idle_since = time.monotonic()
        here = {"ray.io/node-id": ray.get_runtime_context().get_node_id()}
        self._queue: Any = ray.remote(ItemQueue).options(num_cpus=0, max_concurrency=8, label_selector=here).remote()
        self._build = partial(_dataset, self._queue, asked, here, self._room.selector, name)
        LOG.info("workers' logs are on each machine in %s", log_places())
        self._start()

    def _start(self) -> None:
        """Start a dataset that reads the queue. One that follows another reads unfinished items alone."""
        self._dataset, self._results = self._build(), queue.SimpleQueue[Any]()
        threading.Thread(target=_collect, args=(self._dataset, self._results), name="ray", daemon=True).start()

    def _stop(self) -> None:
        """End the dataset with its actors."""
        executor = getattr(self._dataset, "_current_executor", None)
        if executor is not None:
            executor.shutdown(force=True)

    def run(
        self, job: bytes, items: Sequence[WorkItem], output: Output, watchdog: Watchdog
    ) -> Iterator[list[Manifest]]:
        """Run the items by a pickled `JobWorker`; yield the manifests of each item as it finishes.

        A job's bytes are sent once if every round passes the same object. The manifests carry the notes of
        ``watchdog``. Raises the job's errors, and PairmillError if Ray ends the dataset before the last item: Ray drops
        a block whose task failed, so a dataset ends as if it were finished when the task that reads the queue fails.
        """
        if job is not self._job:
            self._job, self._jobs = job, self._jobs + 1
            self._ask("use", self._jobs, job)
        self._rounds += 1
        waiting = {}
        for item in items:  # a later step may have an equal item
            name = f"{self._rounds}-{item.digest}"
            waiting[name] = pickle.dumps((name, self._jobs, item, output))
        self._ask("put", waiting)
        while waiting:
            self._look(watchdog, len(waiting))
            try:
                name, made = self._results.get(timeout=1.0)
            except queue.Empty:
                continue
            if isinstance(made, BaseException):
                raise made
            if made is not None and waiting.pop(name, None):
                self._queue.finish.remote(name)
                watchdog.saw(-1)
                if not waiting:  # a short round ends between two looks
                    self._see_left_out()
                notes, self._notes = self._notes, []
                yield with_notes(made, (*notes, *watchdog.take()))

    def close(self) -> None:
        """Stop the actors, the queue included, and drop the items in flight."""
        import ray

        self._room.end()
        with suppress(PairmillError):  # the queue is lost, and its actors with it
            self._ask("close")
        self._stop()
        ray.kill(self._queue)  # its handles are in a circle that Python collects late, and it holds 130 MB

    def _ask(self, method: str, *given: Any) -> Any:
        """Call a method of the queue and return its result. Raises PairmillError if the queue's process is lost."""
        import ray
        from ray.exceptions import RayActorError

        try:
            return ray.get(getattr(self._queue, method).remote(*given))
        except RayActorError as error:
            raise PairmillError(ENDED) from error

    def _look(self, watchdog: Watchdog, waiting: int) -> None:
        """Check every LOOK_SECONDS whether machines are lost, missing or left out, and whether workers hang.

        Ray Data itself stalls in silence, as after the loss of a machine (ray#64601), or of an actor that starts: where
        workers are idle beside ``waiting`` items, or none starts where there is room, its dataset is replaced.
        """
        if time.monotonic() - self._looked < LOOK_SECONDS:
            return
        self._looked = time.monotonic()
        self._room.look()
        if lost := self._ask("requeue_lost"):
            LOG.warning("%d workers were lost with their machines; what they had is done by others", lost)
        self._see_left_out()
        if self._unfit:
            raise self._unfit
        rows, held, begun = self._ask("progress")
        watchdog.saw(rows)
        watchdog.look(held, self._queue.end_hung.remote)  # at its actor's next heartbeat
        is_stalled = not begun and bool(held or not refusal(self._asked, free()))
        if not is_stalled:
            self._idle_since = self._looked
        elif self._looked - self._idle_since > (IDLE_SECONDS if held else START_SECONDS):
            self._idle_since = self._looked
            whom = "idle workers" if held else "a new worker"
            self._notes.append(f"Ray Data gave none of {waiting:,} items to {whom}; another dataset hands them out")
            LOG.warning(self._notes[-1])
            self._stop()
            self._start()

    def _see_left_out(self) -> None:
        """Start no actors on machines whose GPU has no room for the model; note them, in ``_unfit`` if none is left."""
        left_out = self._ask("left_out")
        for node in left_out.keys() - self._left_out:
            host, error = left_out[node][0], pickle.loads(left_out[node][1])
            self._left_out.add(node)
            if self._room.leave_out(node):
                self._notes.append(f"machine {host} is left out, and others do its work: {error}")
            else:
                self._unfit = error


class Fleets:
    """Idle fleets of a run's finished steps, for later steps to reuse: loading a large model takes minutes.

    A step takes over the fleet of its model if it asks for the same resources. All idle fleets end as soon as the
    machines have no room for a step's own fleet beside them. A fleet without a model has nothing loaded and ends with
    its step, and so does every fleet unless ``keeps``.
    """

    def __init__(self, keeps: bool = False) -> None:
        self._keeps = keeps
        self._left: dict[tuple[str, Resources], Fleet] = {}

    def take(self, model: str, asked: Resources, items: int, build: Callable[[], Fleet]) -> Fleet:
        """Return the idle fleet of ``model`` with the resources ``asked``, else a new fleet from ``build``.

        Ends all idle fleets before a new one if the machines have no room for both. ``items``, the number of pending
        items, bounds the workers that a new fleet needs.
        """
        if fleet := self._left.pop((model, asked), None):
            return fleet
        if self._left and room(asked, free()) < min(asked.most, ceil(items / asked.lanes)):
            self.close()
        return build()

    def give_back(self, model: str, asked: Resources, fleet: Fleet, is_idle: bool) -> None:
        """Store a step's fleet for reuse if it has a model and ``is_idle`` (it has no item in work), else end it."""
        if self._keeps and model and is_idle:
            self._left[model, asked] = fleet
        else:
            fleet.close()

    def close(self) -> None:
        """End all idle fleets."""
        while self._left:
            self._left.popitem()[1].close()


def _dataset(
    items: Any, asked: Resources, here: dict[str, str], selector: Callable[[], dict[str, str]], name: str
) -> Any:
    """Build the dataset: a task here reads the queue, actors run its items on machines that ``selector`` names."""
    import ray
    from ray.util.annotations import RayDeprecationWarning

    context = ray.data.DataContext.get_current()
    for handler in logging.getLogger("ray.data").handlers:  # three lines a stage; Ray's file has all
        if isinstance(handler, logging.StreamHandler):
            handler.setLevel(logging.ERROR)
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # one item a block: an actor starts it as soon as it is queued
    context.downstream_capacity_backpressure_ratio = 2.0  # Ray's default since 2.57, 10 before: ray#64352
    context.max_errored_blocks = -1  # unlimited: the queue redistributes the items of a lost machine
    # Ray would end replicas that are idle for 10 s between two rounds, and start others, which load the model anew.
    context.autoscaling_config.actor_pool_util_downscaling_threshold = -1.0
    context.max_consecutive_actor_init_deaths = 8  # a machine may be lost while an actor starts on it
    source = ray.data.from_items([{"row": 0}])
    source.set_name(f"pairmill {name}")
    handing = _rename(hand_out, f"pairmill items of {name}")
    source = source.map_batches(handing, batch_size=None, fn_kwargs={"items": items}, num_cpus=0, label_selector=here)
    with warnings.catch_warnings():
        # Ray 2.60 has no other way to keep an actor's replacement from a machine that has no room for the model.
        warnings.simplefilter("ignore", RayDeprecationWarning)
        return source.map_batches(
            type(f"pairmill {name}", (Supervisor,), {}),
            fn_constructor_args=(items, asked),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(
                min_size=asked.least,
                max_size=asked.most,
                max_concurrent_calls_per_actor=asked.lanes,
                enable_true_multi_threading=asked.lanes > 1,
            ),
            num_cpus=asked.cpus,
            num_gpus=asked.gpus,
            accelerator_type=asked.kind or None,
            ray_remote_args_fn=lambda: {"label_selector": selector()},
            # Ray must not restart a lost actor: it would wait for a machine that may never join. The queue retries.
            max_restarts=0,
            max_task_retries=0,
        )


def _rename(function: Callable[..., Any], name: str) -> Any:
    """Return the function under another name: Ray names an operator by its function."""

    def called(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    called.__name__ = name
    return called


def _collect(dataset: Any, results: "queue.SimpleQueue[Any]") -> None:
    """Put each outcome into ``results``, then an error for threads that wait. Nothing is prefetched over rounds."""
    ended: BaseException = PairmillError(ENDED)
    try:
        for batch in dataset.iter_batches(batch_size=None, prefetch_batches=0):
            for name, made in zip(batch["name"], batch["made"], strict=True):
                results.put((name, pickle.loads(made)))
    except BaseException as error:
        ended = error
    results.put(("", ended))
