"""Start or join Ray, list its machines, call a function on each, and wait until one has a worker's resources."""

import atexit
import json
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import Node, Resources, refusal
from pairmill.tasks.run.pool.process import LOG
from pairmill.tasks.run.pool.worker import ONE_THREAD

# Seconds between checks for missing or lost machines.
LOOK_SECONDS = 4.0
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 120.0  # a machine starts a worker in 3 to 10 s, and may have to look for a model
# Ray's name of the resource that a machine with a kind of GPU has. A worker that asks for the kind takes a thousandth.
ACCELERATOR, ACCELERATOR_PART = "accelerator_type:", 0.001


def start_ray(placement: Placement) -> list[Node]:
    """Start Ray or join a cluster; return its live machines. Raise PairmillError if nothing answers at its address."""
    import ray

    if not ray.is_initialized():
        is_local = not placement.is_cluster
        ray.init(
            # Without an address Ray attaches to a cluster named by $RAY_ADDRESS or by the file that a killed one left.
            address="local" if is_local else _find_cluster(placement.ray_address),
            num_cpus=max(2, placement.n_workers) if is_local else None,
            include_dashboard=False if is_local else None,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"env_vars": ONE_THREAD},
        )
        atexit.register(ray.shutdown)
    return nodes()


def _find_cluster(address: str) -> str:
    """Return HOST:PORT of a cluster that let us in. Raises PairmillError at once, where Ray would look for minutes."""
    from ray._private.authentication.authentication_token_setup import ensure_token_if_auth_enabled
    from ray._private.ray_constants import KV_NAMESPACE_CLUSTER
    from ray._private.services import canonicalize_bootstrap_address_or_die
    from ray._private.utils import check_version_info
    from ray._raylet import GcsClient  # pyright: ignore[reportAttributeAccessIssue] (compiled)
    from ray.exceptions import AuthenticationError, RayError

    if address.startswith("ray://"):
        raise PairmillError(
            f"--ray {address}: a run cannot use Ray's client (ray://). Run it on a machine of the cluster, by --ray "
            "HOST:6379; `ray start --address HOST:6379 --num-cpus 0` makes this machine one."
        )
    try:
        found = canonicalize_bootstrap_address_or_die(address)
        host, _, port = found.rpartition(":")
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
        ensure_token_if_auth_enabled(create_token_if_missing=False)  # without one Ray's client ends the process
        known = GcsClient(address=found).internal_kv_get(b"CLUSTER_METADATA", KV_NAMESPACE_CLUSTER, CONNECT_SECONDS)
        check_version_info(json.loads(known or b"{}"), "this machine")
    except AuthenticationError:
        raise PairmillError(
            f"--ray {address}: the cluster asks for a token, and this process has none or another. Set "
            "RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN to the cluster's token, or store it in ~/.ray/auth_token."
        ) from None
    except RuntimeError as error:  # of the versions
        said = " ".join(str(error).split())
        raise PairmillError(f"--ray {address}: {said}. Install the same Ray and Python here and there.") from None
    except (OSError, ValueError, RayError) as error:
        reason = " ".join(str(error).split())[:200]
        raise PairmillError(
            f"--ray {address}: nothing answers there as a Ray cluster does ({reason}). Give the address of a cluster's "
            "head as HOST:6379, or leave --ray out to work on this machine."
        ) from None
    return found


def nodes() -> list[Node]:
    """Return the live machines of the joined cluster with their total CPUs and GPUs."""
    import ray

    return [_node(node["NodeID"], node["Resources"]) for node in ray.nodes() if node["Alive"]]


def free() -> list[Node]:
    """Return the live machines with their unused CPUs and GPUs."""
    from ray._private import state

    return [_node(name, has) for name, has in state.available_resources_per_node().items()]


def _node(name: str, has: dict[str, float]) -> Node:
    """Return the machine of this id with the resources that Ray names."""
    kinds = frozenset(each.removeprefix(ACCELERATOR) for each in has if each.startswith(ACCELERATOR))
    return Node(has.get("CPU", 0.0), has.get("GPU", 0.0), kinds, name)


def log_places() -> str:
    """Name the folder of the workers' logs, which has one path on all machines, and the dashboard that shows them."""
    from ray._private import worker

    folder = getattr(worker._global_node, "_session_dir", "/tmp/ray/session_latest")
    page = worker.get_dashboard_url()
    return f"{folder}/logs" + (f", and in Ray's dashboard, http://{page}" if page else "")


class ResourceWait:
    """Wait until some machine has the resources of one worker, and report the wait; Ray alone would wait silently.

    It waits ``patience`` seconds while no autoscaler launches a machine. The start and the end of a wait are logged;
    ``show`` gets each new text about it, and '' when it ends.
    """

    def __init__(self, asked: Resources, patience: float, show: Callable[[str], None]) -> None:
        self._asked, self._patience, self._show = asked, patience, show
        self._short_since = 0.0
        self._shown, self._at, self._since = "", "", 0.0
        self._left_out: set[str] = set()

    def wait(self) -> None:
        """Ask the autoscaler for the resources, and wait until a machine has them. Raises PairmillError as `look`."""
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
            self.end()

    def look(self) -> bool:
        """Return whether a machine has the resources.

        Raises PairmillError when none has had them for ``patience`` seconds and the autoscaler launches none.
        """
        now = time.monotonic()
        if self._is_there():
            self._short_since = 0.0
            self.end()
            return True
        launching = _launching()
        if launching or not self._short_since:
            self._short_since = now
        if now - self._short_since >= self._patience:
            raise PairmillError(refusal(self._asked, self._others()))
        self.go_on(launching)
        return False

    def go_on(self, launching: int) -> None:
        """Report that the stage waits, with the number of machines that an autoscaler is ``launching``."""
        begins = not self._shown
        if begins:
            self._at, self._since = f"{datetime.now(UTC):%H:%M}", time.monotonic()
        named = ((self._asked.cpus, "CPU"), (self._asked.gpus, "GPU"))
        has = " and ".join(f"{n:g} {what}{'s' * (n > 1)}" for n, what in named if n or what == "CPU")
        text = f"waiting for a node with {has} since {self._at} UTC ({launching or 'none'} being launched)"
        if text != self._shown:
            self._shown = text
            self._show(text)
        if begins:
            LOG.warning(text)

    def end(self) -> None:
        """Report that the wait for a machine has ended, if the stage was waiting."""
        if self._shown:
            LOG.warning("waited %.0f s for a node", time.monotonic() - self._since)
            self._shown = ""
            self._show("")

    def leave_out(self, node: str) -> bool:
        """Exclude the machine with the id ``node``; return whether another machine has the resources."""
        self._left_out = self._left_out | {node}  # Ray's thread reads it meanwhile
        return self._is_there()

    def selector(self) -> dict[str, str]:
        """Return Ray's label selector of the machines that are not excluded; {} if none is."""
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


@dataclass(frozen=True)
class NodeAnswer:
    """The result of a call on one machine, with its CPUs and GPUs; ``fault``: why it has no ``answer``, else ''."""

    name: str
    cpus: float
    gpus: float
    answer: Any
    fault: str = ""


def on_each_node(address: str, ask: Callable[..., Any], *given: object) -> list[NodeAnswer]:
    """Call ``ask(*given)`` once on each live machine of the cluster at ``address``, all at once; return the answers.

    A machine whose environment cannot run the function, or that does not answer within ANSWER_SECONDS, has a fault. A
    machine that is lost meanwhile is left out.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    start_ray(Placement(ray_address=address))
    there = [node for node in ray.nodes() if node["Alive"]]
    remote = ray.remote(num_cpus=0, max_retries=0)(ask)
    calls = []
    for node in there:
        only = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        calls.append(remote.options(scheduling_strategy=only).remote(*given))
    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=ANSWER_SECONDS)
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # a lost machine is noticed after some 30 s
    found = []
    for node, call in zip(there, calls, strict=True):
        if node["NodeID"] in alive:
            answer, fault = _answer(call) if call in ready else (None, f"no answer within {ANSWER_SECONDS:.0f} s")
            name = f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})"  # several nodes may be on one machine
            has = node["Resources"]
            found.append(NodeAnswer(name, has.get("CPU", 0.0), has.get("GPU", 0.0), answer, fault))
    return sorted(found, key=lambda each: each.name)


def _answer(call: Any) -> tuple[Any, str]:
    """Return (answer, ''), or (None, one line on the error)."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(call), ""
    except RayError as error:
        cause = getattr(error, "cause", None) or error
        return None, f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1][:300]}"
