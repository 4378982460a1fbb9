"""Start or join Ray, list its machines, and wait until one has the resources of a worker."""

import atexit
import logging
import time

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.cluster.waiting import Waiting
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import Node, Resources, refusal
from pairmill.tasks.run.pool.worker import ONE_THREAD

# Seconds between checks for missing or lost machines.
LOOK_SECONDS = 4.0
# Ray's name of the resource that a machine with a kind of GPU has. A worker that asks for the kind takes a thousandth.
ACCELERATOR, ACCELERATOR_PART = "accelerator_type:", 0.001


def started(placement: Placement) -> list[Node]:
    """Start Ray or join a cluster; return its live machines."""
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
    return nodes()


def nodes() -> list[Node]:
    """Return the live machines."""
    import ray

    return [_node(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def free() -> list[Node]:
    """Return the live machines with the CPUs and GPUs that no worker has."""
    from ray._private import state

    return [_node(name, has) for name, has in state.available_resources_per_node().items()]


def _node(name: str, has: dict[str, float]) -> Node:
    """Return the machine of this id with the resources that Ray names."""
    kinds = frozenset(each.removeprefix(ACCELERATOR) for each in has if each.startswith(ACCELERATOR))
    return Node(has.get("CPU", 0.0), has.get("GPU", 0.0), kinds, name)


def session_folder() -> str:
    """Return the folder of Ray's session files; it has the same path on every machine."""
    from ray._private import worker

    return getattr(worker._global_node, "_session_dir", "/tmp/ray/session_latest")


class ResourceWait:
    """Check that some machine has the resources of one worker; without them Ray would wait silently.

    Args:
        asked: The resources.
        patience: Seconds to wait for them while no autoscaler launches a machine.
        waiting: Told of each wait.
    """

    def __init__(self, asked: Resources, patience: float, waiting: Waiting) -> None:
        self._asked, self._patience, self._waiting = asked, patience, waiting
        self._short_since = 0.0
        self._left_out: set[str] = set()

    def wait(self) -> None:
        """Wait until a machine has the resources, after asking the autoscaler for them. Raises PairmillError."""
        from ray.autoscaler.sdk import request_resources

        if self._is_there():
            return
        kind = {f"{ACCELERATOR}{self._asked.kind}": ACCELERATOR_PART} if self._asked.kind else {}
        request_resources(bundles=[{"CPU": self._asked.cpus, "GPU": self._asked.gpus, **kind}])
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
            raise PairmillError(refusal(self._asked, self._others()))
        self._waiting.go_on(launching)
        return False

    def leave_out(self, node: str) -> bool:
        """Do not count the machine with this id; return whether another one has the resources."""
        self._left_out = self._left_out | {node}  # Ray's thread reads it meanwhile
        return self._is_there()

    def selector(self) -> dict[str, str]:
        """Return the label selector of machines that are not left out."""
        return {"ray.io/node-id": f"!in({','.join(sorted(self._left_out))})"} if self._left_out else {}

    def _is_there(self) -> bool:
        return not refusal(self._asked, self._others())

    def _others(self) -> list[Node]:
        """Return the machines that are not left out."""
        return [node for node in nodes() if node.id not in self._left_out]


def _launching() -> int:
    """Count the machines that an autoscaler is launching."""
    import ray
    from ray.autoscaler.v2.sdk import get_cluster_status

    status = get_cluster_status(ray.get_runtime_context().gcs_address)
    return len(status.pending_nodes) + sum(each.count for each in status.pending_launches)
