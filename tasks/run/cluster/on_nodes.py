"""Call a function on every machine of a Ray cluster, and return what each answers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pairmill.tasks.run.cluster.ray_nodes import started
from pairmill.tasks.run.place.placement import Placement

SECONDS = 120.0  # a machine starts a worker in 3 to 10 s, and may have to look for a model
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class NodeAnswer(Generic[Answer]):
    """A machine with its CPUs and GPUs, and its answer; ``fault`` says in one line why there is none."""

    name: str
    cpus: float
    gpus: float
    answer: Answer | None
    fault: str = ""


def on_each_node(
    address: str, ask: Callable[..., Answer], *given: object, seconds: float = SECONDS
) -> list[NodeAnswer[Answer]]:
    """Call ``ask(*given)`` once on each live machine of the cluster at ``address``, all at the same time.

    A machine whose environment cannot run the function, or that does not answer within ``seconds``, has a fault. One
    that is lost meanwhile is left out.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    started(Placement(ray_address=address))
    nodes = [node for node in ray.nodes() if node["Alive"]]
    remote = ray.remote(num_cpus=0, max_retries=0)(ask)
    asked = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
        asked.append(remote.options(scheduling_strategy=there).remote(*given))
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=seconds)
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}  # a lost machine is noticed after some 30 s
    found = []
    for node, call in zip(nodes, asked, strict=True):
        if node["NodeID"] not in alive:
            continue
        answer, fault = _answer(call) if call in ready else (None, f"no answer within {seconds:.0f} s")
        has = node["Resources"]
        found.append(NodeAnswer(_name(node), has.get("CPU", 0.0), has.get("GPU", 0.0), answer, fault))
    return sorted(found, key=lambda each: each.name)


def _answer(call: Any) -> tuple[Any, str]:
    """Return (answer, '') or (None, why there is none)."""
    import ray
    from ray.exceptions import RayError

    try:
        return ray.get(call), ""
    except RayError as error:
        cause = getattr(error, "cause", None) or error
        return None, f"{type(cause).__name__}: {str(cause).strip().splitlines()[-1][:300]}"


def _name(node: dict) -> str:
    """Return a machine's address, with the first digits of its id: several nodes may be on one machine."""
    return f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})"
