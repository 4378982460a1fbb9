"""Script: run model stages on a cluster of unequal machines; print the results as JSON.

The cluster has a head without GPUs, a machine with 2 GPUs of kind H100 and 8 CPUs for each, and one with a T4 and 3
CPUs. It runs in a separate process, because a process can have only one Ray.
"""

import json
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from pairmill.catalog.write.commit import Manifest
from pairmill.ops.models.model_error import ModelError, UnfitDevice
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.stage import JobStage
from tests.worlds.sleeping_model import note, noted
from tests.worlds.two_nodes import OnGpu, here, items, node_of, said

WHERE = Placement(ray_address="auto")


@dataclass(frozen=True)
class Large(OnGpu):
    """Model job that cannot load its model on the machines named in the log ``no-room``.

    On all other machines, loading waits for the first such failure. The job logs the threads that prepare its batches.
    """

    def load(self) -> None:
        super().load()
        if (node := here().split()[0]) in noted(Path(self.folder), "no-room"):
            note(self.folder, "failed-loads", node)
            raise UnfitDevice("model 'large' does not fit the GPU: its weights take 40.0 GB, and 15.0 GB are free")
        until = time.monotonic() + 300
        while not noted(Path(self.folder), "failed-loads") and time.monotonic() < until:
            time.sleep(0.1)

    def prepare(self, piece: Piece) -> Piece:
        node, process, _ = here().split()
        note(self.folder, "feeders", f"{node}/{process}/{threading.get_ident()}")
        time.sleep(0.05)
        return piece


def run(job: Large, where: Placement, name: str, n: int = 24) -> tuple[list[Manifest], str]:
    """Run ``n`` items; return their manifests, and Ray's statistics of the operators."""
    with JobStage(job, where, name="caption") as stage:
        made = [
            each for found in stage.run(items(name, n, rows=4), Output(f"{job.folder}/", "run", 1)) for each in found
        ]
        assert stage._fleet is not None
        return made, stage._fleet[1]._dataset.stats()


def nodes_of(made: list[Manifest], names: dict[str, str]) -> dict[str, int]:
    """Count rows by the machine that made them."""
    counts = dict.fromkeys(names.values(), 0)
    keys = set()
    for manifest in made:
        for key, (node, *_) in said(manifest):
            counts[names[node]] += 1
            keys.add(key)
    assert len(keys) == sum(counts.values())
    return counts


def feeders(folder: str, names: dict[str, str]) -> dict[str, int]:
    """Return the most threads that prepared batches in one process of each machine."""
    threads: dict[tuple[str, str], set[str]] = {}
    for word in set(noted(Path(folder), "feeders")):
        node, process, thread = word.split("/")
        threads.setdefault((node, process), set()).add(thread)
    return {name: max((len(of) for (node, _), of in threads.items() if names[node] == name), default=0)
            for name in names.values()}  # fmt: skip


def main(out: str) -> None:
    """Run all scenarios and print their results."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    large = cluster.add_node(num_cpus=16, num_gpus=2, resources={"accelerator_type:H100": 1})
    small = cluster.add_node(num_cpus=3, num_gpus=1, resources={"accelerator_type:T4": 1})
    ray.init(address=cluster.address, log_to_driver=False)
    names = {node_of(large): "large", node_of(small): "small"}
    told: dict[str, Any] = {}

    note(out, "no-room", node_of(small))
    job = Large(out, 0.02)
    made, stats = run(job, WHERE, "mixed")
    told["left out"] = {
        "rows": nodes_of(made, names),
        "notes": [text for manifest in made for text in manifest.notes],
        "loads on the small card": len(noted(Path(out), "failed-loads")),
        "stats": stats,
    }
    of_kind = replace(WHERE, models={"clip": ModelPool(accelerator="T4")})
    try:
        run(job, of_kind, "nowhere", 2)
        told["no room anywhere"] = ""
    except ModelError as error:
        told["no room anywhere"] = str(error)
    told["feeders"] = feeders(out, names)
    print("\n" + json.dumps(told), flush=True)


if __name__ == "__main__":
    from tests.worlds.mixed_nodes import main as as_imported  # workers import the job by its module's name

    as_imported(sys.argv[1])
