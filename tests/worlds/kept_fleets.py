"""Script: run the steps of a run one after another on two logical GPUs; print how often each model was loaded as JSON.

It runs in a separate process, because a process can have only one Ray.
"""

import json
import sys
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.cluster.on_ray import Fleets
from pairmill.tasks.run.items.partition import Job, Output
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.stage import JobStage
from tests.worlds.sleeping_model import Sleeps, noted
from tests.worlds.two_nodes import OnCpus, items

WHERE = Placement(ray_address="auto", workers=1, models={name: ModelPool(feeders=1) for name in ("clip", "captioner")})
REPLICAS = 2
# Ray ends actors that have nothing to do for some 10 s, unless it is told not to.
IDLE_SECONDS = 14.0


def step(out: str, fleets: Fleets, job: Job, name: str, rounds: int = 1, pause: float = 0.0) -> None:
    """Run one step of ``rounds`` rounds, each with enough items for all replicas."""
    with JobStage(job, WHERE, name=name, fleets=fleets) as stage:
        for n in range(rounds):
            time.sleep(pause if n else 0.0)
            work = items(f"round{n}", 8 * REPLICAS, rows=4)  # equal items in every step
            assert len(list(stage.run(work, Output(f"{out}/", "run", 1, name)))) == len(work)


def main(out: str) -> None:
    """Run the steps of a run with two waves and print how often each model was loaded after each step."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=5, num_gpus=REPLICAS)
    ray.init(address=cluster.address, log_to_driver=False)
    folders = {name: Path(out) / name for name in ("clip", "captioner")}
    for folder in folders.values():
        folder.mkdir()
    clip, captioner = (Sleeps(str(folders[name]), infers=0.1, model=name) for name in folders)
    fleets, told = Fleets(keeps=True), {}

    def loads() -> list[int]:
        return [len(noted(folder, "loads")) for folder in folders.values()]

    step(out, fleets, clip, "score", rounds=2, pause=IDLE_SECONDS)
    told["two rounds"] = loads()
    step(out, fleets, OnCpus(0.05), "words")  # one worker on a CPU: there is room for it beside the fleet
    step(out, fleets, clip, "similarity")
    told["another step"] = loads()
    step(out, fleets, captioner, "caption")
    step(out, fleets, captioner, "caption again")
    told["another model, twice"] = loads()
    try:
        step(out, fleets, Sleeps(str(folders["captioner"]), model="captioner", batch=0), "a bug")
        told["bug"] = ""
    except (PairmillError, ValueError) as error:
        told["bug"] = str(error)
    step(out, fleets, captioner, "after the bug")
    told["after a failed step"] = loads()
    fleets.close()
    deadline = time.monotonic() + 20
    while ray.available_resources().get("GPU", 0.0) < REPLICAS and time.monotonic() < deadline:
        time.sleep(0.5)
    told["GPUs free at the end"] = ray.available_resources().get("GPU", 0.0)
    print("\n" + json.dumps(told), flush=True)


if __name__ == "__main__":
    from tests.worlds.kept_fleets import main as as_imported  # workers import the job by its module's name

    as_imported(sys.argv[1])
