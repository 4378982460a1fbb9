"""Run work items inside a Ray actor, in a supervised worker process with feeder threads by its machine's CPUs."""

import functools
import os
import pickle
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.model_error import UnfitDevice
from pairmill.tasks.run.cluster.item_queue import SILENT_SECONDS
from pairmill.tasks.run.cluster.ray_nodes import LOOK_SECONDS, nodes
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.resources import Resources, feeders_on
from pairmill.tasks.run.pool.pool import RowsAhead, run_item
from pairmill.tasks.run.pool.process import LoadDeaths, Process
from pairmill.tasks.run.pool.worker import JobWorker

# After this many lost machines an item itself is the suspect, and the run stops.
MOST_TRIES = 5


def hand_out(_: Any, items: Any) -> Iterator[dict]:
    """Yield each item of the `ItemQueue` actor ``items`` as a row, until it is closed; a rerun yields the same rows."""
    import ray

    at = 0
    while (item := ray.get(items.take.remote(at))) is not None:
        yield {"item": [item]}
        at += 1


class Supervisor:
    """Ray actor that runs items of an `ItemQueue` in a worker process of its own, and survives that process's death."""

    def __init__(self, items: Any, asked: Resources) -> None:
        import ray

        self._items = items
        self._node = ray.get_runtime_context().get_node_id()
        here = [node for node in nodes() if node.id == self._node]
        self._feeders = feeders_on(asked, here[0]) if here else asked.feeders
        self._job: tuple[int, JobWorker | None, bytes] = 0, None, b""
        self._lock = threading.Lock()
        environment = {} if asked.gpus else {"CUDA_VISIBLE_DEVICES": ""}
        self._process = Process(environment, is_forked=False)  # a fork server for a single worker costs 0.3 GB
        self._host = ray.util.get_node_ip_address()
        self._name, self._ahead = uuid.uuid4().hex, RowsAhead()
        threading.Thread(target=self._send_heartbeats, daemon=True).start()

    def _send_heartbeats(self) -> None:
        """Send heartbeats for ever, one every SILENT_SECONDS / 5."""
        import ray

        while True:
            held = self._process.in_hand()
            told = self._ahead.total(), held and f"{held} on {self._host}"
            if ray.get(self._items.hear.remote(self._name, *told)):
                self._process.end_hung()
            time.sleep(SILENT_SECONDS / 5)

    def __call__(self, batch: dict) -> dict:
        """Run the items of a batch; return the name and the pickled outcome of each."""
        names, made = [], []
        for row in batch["item"]:
            name, number, item, output = pickle.loads(row)
            names.append(name)
            made.append(pickle.dumps(self._outcome(name, number, item, output)))
        return {"name": names, "made": made}

    def _outcome(self, name: str, number: int, item: WorkItem, output: Output) -> list[Manifest] | BaseException | None:
        """Run an item by job ``number``; return its manifests, its error, or None if another actor runs the item.

        The exception is not raised: Ray is set to tolerate any number of failed blocks, so the run would never see it.
        """
        import ray

        tries: Any = ray.get(self._items.begin.remote(name, self._name))
        if not tries:
            return None
        if tries > MOST_TRIES:
            return PairmillError(
                f"shard {item.shard}: each of {MOST_TRIES} machines that worked on {len(item.keys)} rows of it was "
                "lost; what was finished is committed. Look at the memory of these, then run the same command again."
            )
        try:
            report = functools.partial(self._ahead.add, name)
            return run_item(self._process, *self._worker(number), item, output, report)
        except (UnfitDevice, LoadDeaths) as error:
            self._leave_out(error)
        except Exception as error:
            return error
        finally:
            self._ahead.end(name)

    def _worker(self, number: int) -> tuple[JobWorker, bytes]:
        """Return job ``number`` with this machine's feeders, also pickled: the same object for each of its items."""
        import ray

        with self._lock:
            if number != self._job[0]:
                job: Any = ray.get(self._items.job.remote())
                worker = replace(pickle.loads(job[1]), feeders=self._feeders)
                self._job = job[0], worker, pickle.dumps(worker)
            _, worker, payload = self._job
            assert worker is not None
            return worker, payload

    def _leave_out(self, error: Exception) -> None:
        """Report that the model does not fit this machine, hand all items back, and end this actor.

        The actor must not stay: Ray would keep handing it items, as it is always free. It ends after the run has
        excluded its machine, because Ray starts a replacement at once, which must go to another machine.
        """
        import ray

        host = f"{self._host} ({self._node[:6]})"
        ray.get(self._items.leave_out.remote(self._name, self._node, host, pickle.dumps(error)))
        time.sleep(LOOK_SECONDS + 1)
        os._exit(1)
