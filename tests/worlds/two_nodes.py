"""Script: run stages on a cluster of a CPU node and a node with a logical GPU; print the results as JSON.

It runs in a separate process, because a process can have only one Ray. The rows of its jobs say where they were made.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.cluster_utils import Cluster

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect import fetch as fetching
from pairmill.tasks.collect.fetch import FetchPictures
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run import stage as stages
from pairmill.tasks.run.items.model_job import Piece, one_by_one
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.stage import JobStage
from tests.worlds.shared import new_lake
from tests.worlds.sleeping_model import note, noted
from tests.worlds.web import LOOPBACK, Handler, Manner, photograph, web


def here() -> str:
    """Return this worker's node, process id and visible GPUs."""
    return f"{os.environ['RAY_RAYLET_PID']} {os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES') or 'none'}"


@dataclass(frozen=True)
class OnCpus:
    """Job for CPUs that sleeps."""

    seconds: float

    def __call__(self, item: WorkItem) -> list[Part]:
        time.sleep(self.seconds)
        return rows_of(item)


def rows_of(item: WorkItem) -> list[Part]:
    """Make rows that say where they were made."""
    said = [here().encode()] * len(item.keys)
    return [Part("image_embedding", pa.table({"sha256": list(item.keys), "image_vector": said}), "s")]


@dataclass(frozen=True)
class OnGpu:
    """Model job that logs each load."""

    item_rows: ClassVar[int] = 4

    folder: str
    seconds: float
    model: str = "clip"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        return one_by_one(self, item)

    def load(self) -> None:
        note(self.folder, "loads", here().replace(" ", "/"))
        # Ray's GPUs are logical here: CUDA_VISIBLE_DEVICES is what a worker would see.

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        for key in item.keys:
            yield Piece((key,), None)

    def prepare(self, piece: Piece) -> Piece:
        return piece

    def infer(self, ready: Piece) -> Piece:
        time.sleep(self.seconds)
        return ready

    def fetch(self, running: Piece) -> Piece:
        return running

    def parts(self, item: WorkItem, found: list[Any]) -> list[Part]:
        return rows_of(item)


def node_of(node: Any) -> str:
    """Return a node's identity as workers report it."""
    return str(node.all_processes["raylet"][0].process.pid)


def results(stage: JobStage, work: list[WorkItem], out: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (key, where it was made) of each row, as items finish."""
    for manifests in stage.run(work, Output(f"{out}/", "run", 1)):
        for manifest in manifests:
            yield from said(manifest)


def said(manifest: Manifest) -> Iterator[tuple[str, list[str]]]:
    """Yield (key, where it was made) of the rows of a manifest."""
    read: Any = pq.read_table
    for row in read(manifest.path, partitioning=None).to_pylist():
        yield row["sha256"], row["image_vector"].decode().split(" ")


def items(name: str, n: int, rows: int = 1) -> list[WorkItem]:
    """Make ``n`` work items of ``rows`` rows."""
    return [WorkItem(f"{name}-{n}", tuple(f"{name}-{n}-{row}" for row in range(rows))) for n in range(n)]


def table(out: str, where: Placement, names: dict[str, str]) -> list[dict]:
    """Run a CPU stage and a GPU stage; return the node and visible devices of each row."""
    told = []
    for name, job, work in (
        ("on CPUs", OnCpus(0.2), items("cpu", 40)),
        ("on a GPU", OnGpu(out, 0.1), items("gpu", 12, rows=4)),
    ):
        with JobStage(job, where) as stage:
            made = list(results(stage, work, out))
        assert len({key for key, _ in made}) == len(made) == sum(len(item.keys) for item in work)
        told += [{"stage": name, "node": names[node], "saw": saw} for _, (node, _, saw) in made]
    return told


def nodes_come_and_go(cluster: Any, first: Any, out: str, where: Placement) -> dict:
    """Add a second GPU node, then remove the first one; return the rows and delays."""
    made: list[tuple[str, list[str]]] = []
    at: dict[str, float] = {}
    started = time.monotonic()
    state: dict[str, Any] = {}

    with JobStage(OnGpu(out, 0.25), where) as stage:
        for n, (key, (node, _, _)) in enumerate(results(stage, items("come", 60, rows=4), out)):
            made.append((key, [node]))
            if n == 12:
                state["second"] = cluster.add_node(num_cpus=3, num_gpus=1)
                at["joined"] = time.monotonic() - started
            if "second" in state and node == node_of(state["second"]) and "worked" not in at:
                at["worked"] = time.monotonic() - started
                cluster.remove_node(first, allow_graceful=False)
                at["lost"] = time.monotonic() - started
    keys = [key for key, _ in made]
    return {"rows": len(keys), "distinct": len(set(keys)), "joined to working": at["worked"] - at["joined"],
            "after the loss": time.monotonic() - started - at["lost"]}  # fmt: skip


def refused(out: str, where: Placement) -> dict:
    """Request resources that no node has; return the error and its delay."""
    started = time.monotonic()
    try:
        with patch.object(stages, "PATIENCE_SECONDS", 5.0), JobStage(OnGpu(out, 0.1), where) as stage:
            list(results(stage, items("never", 2), out))
    except PairmillError as error:
        return {"said": str(error), "seconds": time.monotonic() - started}
    return {"said": "", "seconds": time.monotonic() - started}


@dataclass(frozen=True)
class NotedFetch(FetchPictures):
    """Fetch that logs where each item is fetched."""

    folder: str = ""

    def __call__(self, item: WorkItem) -> list[Part]:
        note(self.folder, "fetched", here().split(" ")[0])
        return super().__call__(item)


def fetched(out: str, names: dict[str, str]) -> dict:
    """Fetch 2,000 addresses of one host over both nodes.

    Returns the number of pictures, the nodes that fetched, and the most requests that the host had open at once.
    """
    noting = patch.object(fetching, "FetchPictures", partial(NotedFetch, folder=out))
    with web() as server, noting:
        server.manners["/a.jpg"] = picture_after(0.02)
        folder = Path(out) / "list"
        folder.mkdir()
        # Ten work items: one worker may be given four before the other node has a worker.
        urls = [server.url(f"/a.jpg?{n}") for n in range(2_000)]
        pq.write_table(
            pa.table({"url": urls, "caption": [f"A picture, number {url}." for url in urls]}), folder / "a.parquet"
        )
        recipe = load_recipe("demo", {"fetch.retries": "0", "fetch.per_host": "5"})
        lake = str(new_lake(Path(out) / "lake"))
        with session(recipe, [str(folder)], lake, Compute.model_validate({})) as held:
            ingest(held)
        compute = Compute.model_validate({"ray_address": "auto", "allow_addresses": list(LOOPBACK)})
        with session(recipe, [str(folder)], lake, compute) as held:
            fetching.fetch(held)
            ((n,),) = held.lake.query("SELECT count(*) FROM fetched WHERE reason = ''")
        nodes = {names[node] for node in noted(Path(out), "fetched")}
        return {"pictures": n, "nodes": sorted(nodes), "most open": server.most_open}


def picture_after(seconds: float) -> Manner:
    """Return a behaviour of the web server: wait ``seconds``, then answer with a picture."""
    data = photograph()

    def answer(handler: Handler) -> None:
        time.sleep(seconds)
        handler.answer(200, data)

    return answer


def main(out: str) -> None:
    """Run all scenarios and print their results."""
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    first = cluster.add_node(num_cpus=3, num_gpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    names = {node_of(cluster.head_node): "the node without a GPU", node_of(first): "the node with a GPU"}
    where = Placement(ray_address="auto", models={"clip": ModelPool(feeders=1)})
    told: dict[str, Any] = {"table": table(out, where, names)}
    told["fetched"] = fetched(out, names)
    too_much = Placement(ray_address="auto", models={"clip": ModelPool(gpus=4, feeders=1)})
    told["refused"] = refused(out, too_much)
    told["nodes"] = nodes_come_and_go(cluster, first, out, where)
    print("\n" + json.dumps(told), flush=True)
