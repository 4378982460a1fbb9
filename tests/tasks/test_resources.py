"""What a stage takes of the machines that there are, by its job, and which GPUs its workers see."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import floor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.place.resources import (
    LANES,
    MOST_FEEDERS,
    UNBOUNDED,
    Node,
    Resources,
    count_in_flight,
    devices,
    devices_by_worker,
    feeders_on,
    refusal,
    resources,
    this_machine,
)
from pairmill.tasks.run.stage import JobStage
from tests.worlds.sleeping_model import Sleeps, note, noted

CPUS, CARD, POOR = [Node(16, 0)], [Node(16, 1)], [Node(1, 1)]
MIXED = [Node(64, 0), Node(16, 1)]
BIG = [Node(128, 8)]
WHOLE = ModelPool()
QUARTER = ModelPool(gpus=0.25)
FED = ModelPool(feeders=3)
ON_CPU = ModelPool(gpus=0)


@pytest.mark.parametrize(
    ("nodes", "pool", "asked"),
    [  # a job without a model: a worker a CPU, on every machine
        (CPUS, None, Resources(1.0, 0.0, 1, 16)),
        (CARD, None, Resources(1.0, 0.0, 1, 16)),
        (POOR, None, Resources(1.0, 0.0, 1, 1)),
        (MIXED, None, Resources(1.0, 0.0, 1, 80)),
        (BIG, None, Resources(1.0, 0.0, 1, 128)),
        # one with a model: a process a GPU, fed by its part of the CPUs; without a GPU as any job
        (CPUS, WHOLE, Resources(1.0, 0.0, 1, 16)),
        (CARD, WHOLE, Resources(12.0, 1.0, 1, 1, LANES, 11, MOST_FEEDERS)),
        (POOR, WHOLE, Resources(1.0, 1.0, 1, 1, LANES, 1, MOST_FEEDERS)),
        (MIXED, WHOLE, Resources(12.0, 1.0, 1, 1, LANES, 11, MOST_FEEDERS)),
        (BIG, WHOLE, Resources(12.0, 1.0, 1, 8, LANES, 11, MOST_FEEDERS)),
        ([Node(128, 1)], WHOLE, Resources(16.0, 1.0, 1, 1, LANES, MOST_FEEDERS, MOST_FEEDERS)),
        ([Node(8, 8)], WHOLE, Resources(1.0, 1.0, 1, 8, LANES, 1, MOST_FEEDERS)),
        # with a share of a card, or several cards
        (CARD, QUARTER, Resources(3.0, 0.25, 1, 4, LANES, 2, MOST_FEEDERS)),
        (BIG, QUARTER, Resources(3.0, 0.25, 1, 32, LANES, 2, MOST_FEEDERS)),
        (POOR, QUARTER, Resources(0.25, 0.25, 1, 4, LANES, 1, MOST_FEEDERS)),
        (BIG, ModelPool(gpus=0.3), Resources(4.0, 0.3, 1, 24, LANES, 3, MOST_FEEDERS)),
        (BIG, ModelPool(gpus=2), Resources(16.0, 2, 1, 4, LANES, 15, MOST_FEEDERS)),
        ([*CARD, Node(64, 4)], ModelPool(gpus=2), Resources(16.0, 2, 1, 2, LANES, 15, MOST_FEEDERS)),
        # with feeders named: a loop without them, several items in flight with
        (CPUS, FED, Resources(4.0, 0.0, 1, 4, LANES, 3, 3)),
        (CARD, FED, Resources(4.0, 1.0, 1, 1, LANES, 3, 3)),
        (POOR, FED, Resources(4.0, 1.0, 1, 1, LANES, 3, 3)),
        (MIXED, FED, Resources(4.0, 1.0, 1, 1, LANES, 3, 3)),
        (BIG, FED, Resources(4.0, 1.0, 1, 8, LANES, 3, 3)),
        (BIG, ModelPool(feeders=0), Resources(1.0, 1.0, 1, 8)),
        # kept to CPUs although there are GPUs
        (CARD, ON_CPU, Resources(1.0, 0.0, 1, 16)),
        (MIXED, ON_CPU, Resources(1.0, 0.0, 1, 80)),
        (BIG, ModelPool(gpus=0, feeders=7), Resources(8.0, 0.0, 1, 16, LANES, 7, 7)),
        # with replicas named: here no more than there is room for on the cards
        (CPUS, ModelPool(replicas=(3, 3)), Resources(1.0, 0.0, 3, 3)),
        (BIG, ModelPool(replicas=(2, 4)), Resources(12.0, 1.0, 2, 4, LANES, 11, MOST_FEEDERS)),
        (CARD, ModelPool(gpus=0.5, replicas=(5, 9)), Resources(6.0, 0.5, 2, 2, LANES, 5, MOST_FEEDERS)),
    ],
)
def test_what_each_worker_takes_and_how_many_there_are(nodes: list[Node], pool: ModelPool | None, asked: Resources):
    where = Placement(models={"clip": pool} if pool else {"clip": ModelPool(gpus=1)})
    assert resources(where, "clip" if pool else "", nodes) == asked


def test_on_a_cluster_a_model_has_the_replicas_that_are_named_and_else_as_many_as_come_to_have_room():
    for pool, most in [(WHOLE, UNBOUNDED), (ModelPool(replicas=(2, 4)), 4), (ModelPool(replicas=(9, 9)), 9)]:
        asked = resources(Placement(ray_address="auto", models={"clip": pool}), "clip", CARD)
        assert (asked.least, asked.most) == (max(1, pool.replicas[0]), most)


@pytest.mark.parametrize(
    ("nodes", "pool", "feeders"),
    [
        # {192 CPUs, 8 GPUs} has as many feeders beside {8, 1} as alone
        ([Node(192, 8), Node(8, 1)], WHOLE, [15, 5]),
        ([Node(192, 8)], WHOLE, [15]),
        ([Node(128, 8), Node(64, 8), Node(4, 8)], WHOLE, [11, 5, 1]),
        ([Node(128, 8), Node(64, 0), Node(16, 1)], QUARTER, [2, 15, 2]),
        # a number that the run sets holds everywhere
        ([Node(192, 8), Node(8, 1)], FED, [3, 3]),
        ([Node(192, 8), Node(8, 1)], ModelPool(feeders=0), [0, 0]),
        ([Node(192, 8), Node(8, 1)], ON_CPU, [0, 0]),
    ],
)
def test_a_replica_has_the_feeders_of_the_machine_that_it_is_on(nodes: list[Node], pool: ModelPool, feeders: list[int]):
    asked = resources(Placement(models={"clip": pool}), "clip", nodes)
    assert [feeders_on(asked, node) for node in nodes] == feeders


H100S, T4S = Node(16, 2, frozenset({"H100"})), Node(4, 1, frozenset({"T4"}))


def test_a_model_on_one_kind_of_gpu_is_sized_by_the_machines_that_have_it():
    for kind, cpus, replicas in (("H100", 6.0, 2), ("T4", 3.0, 1)):
        where = Placement(models={"clip": ModelPool(accelerator=kind)})
        asked = resources(where, "clip", [H100S, T4S, Node(64, 0)])
        assert (asked.cpus, asked.gpus, asked.most, asked.kind) == (cpus, 1.0, replicas, kind)
        assert count_in_flight(asked, [H100S, T4S]) == LANES * replicas
        assert refusal(asked, [H100S, T4S]) == ""


def test_a_kind_that_no_machine_has_is_refused_with_the_kinds_that_there_are():
    asked = resources(Placement(models={"clip": ModelPool(accelerator="A100")}), "clip", [H100S, T4S])
    told = refusal(asked, [H100S, T4S])
    assert "asks for 1 CPUs and 1 GPUs of kind A100, and no machine has as many" in told
    assert "(4 CPUs, 1 GPUs (T4); 16 CPUs, 2 GPUs (H100))" in told
    assert "or another accelerator (--model" in told


def test_workers_count_those_on_cpus_alone():
    where = Placement(workers=3)
    assert resources(where, "", BIG) == resources(where, "clip", CPUS) == Resources(1.0, 0.0, 1, 3)
    assert resources(where, "clip", BIG).most == 8
    assert resources(Placement(), "", MIXED).most == sum(int(node.cpus) for node in MIXED)


NODES = st.lists(st.builds(Node, st.integers(1, 256), st.integers(0, 8)), min_size=1, max_size=5)
GPUS = st.none() | st.integers(1, 8) | st.integers(100, 9_999).map(lambda n: n / 10_000)


@given(nodes=NODES, gpus=GPUS)
def test_unless_feeders_are_named_all_replicas_fit_the_machine_with_the_fewest_cpus_for_its_gpus(
    nodes: list[Node], gpus: float | None
):
    asked = resources(Placement(models={"clip": ModelPool(gpus)}), "clip", nodes)
    for node in nodes:
        on_it = _replicas_by_counting(node, asked.gpus) if asked.gpus else floor(node.cpus)
        assert on_it * asked.cpus <= node.cpus + 1e-9
    if asked.gpus:
        room = sum(_replicas_by_counting(node, asked.gpus) for node in nodes)
        assert asked.most == max(1, room) and asked.feeders >= 1 and asked.lanes > 1
        assert bool(refusal(asked, nodes)) == (room == 0)
    assert asked.cpus > 0 and round(asked.cpus, 4) == asked.cpus


def _replicas_by_counting(node: Node, gpus: float) -> int:
    """Give one card after the other to replicas, in Ray's steps of 1 / 10,000 of a card."""
    takes, n = round(gpus * 10_000), 0
    if takes >= 10_000:
        return node_cards(node) * 10_000 // takes
    for _ in range(node_cards(node)):
        left = 10_000
        while left >= takes:
            left, n = left - takes, n + 1
    return n


def node_cards(node: Node) -> int:
    return int(node.gpus)


@given(
    nodes=NODES,
    gpus=GPUS,
    feeders=st.none() | st.integers(0, 64),
    workers=st.integers(0, 50),
    address=st.sampled_from(["", "local", "auto"]),
)
def test_a_job_without_a_model_never_has_a_gpu(
    nodes: list[Node], gpus: float | None, feeders: int | None, workers: int, address: str
):
    pool = ModelPool(gpus, (1, 2), feeders)
    asked = resources(Placement(workers, address, models={"": pool, "clip": pool}), "", nodes)
    assert (asked.gpus, asked.share, asked.feeders, asked.lanes, asked.cpus) == (0.0, 0.0, 0, 1, 1.0)
    assert asked.most == workers or not workers


@pytest.mark.parametrize(
    ("visible", "named"),
    [
        ("0,1", ("0", "1")),
        (" 2 , 3", ("2", "3")),
        ("GPU-8932f937", ("GPU-8932f937",)),
        ("", ()),
        ("-1", ()),
        ("0,-1,1", ("0",)),
        ("0,,1", ("0",)),
    ],
)
def test_gpus_are_those_that_cuda_would_see(monkeypatch: pytest.MonkeyPatch, visible: str, named: tuple[str, ...]):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices() == named
    assert this_machine().gpus == len(named)


def test_without_the_variable_gpus_are_the_machines_devices(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    there = [path for path in Path("/dev").iterdir() if re.fullmatch(r"nvidia\d+", path.name)]
    assert devices() == tuple(str(n) for n in range(len(there)))


@pytest.mark.parametrize(
    ("visible", "gpus", "seen"),
    [
        ("4,5,6", 0.25, ("4", "5", "6")),
        ("4,5,6", 1, ("4", "5", "6")),
        ("4,5,6", 2, ("4,5",)),
        ("4,5,6,7", 2, ("4,5", "6,7")),
        ("4,5", 0, ("",)),
        ("", 0, ("",)),
        ("", 1, ()),
    ],
)
def test_each_worker_sees_its_own_cards(
    monkeypatch: pytest.MonkeyPatch, visible: str, gpus: float, seen: tuple[str, ...]
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert devices_by_worker(gpus) == seen


def test_a_machine_without_the_gpus_that_are_asked_for_is_told_so_and_what_to_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    where = Placement(models={"clip": ModelPool(gpus=1)})
    told = r"asks for \d+ CPUs and 1 GPUs, and no machine has as many \(\d+ CPUs, 0 GPUs\)\. Give its model fewer GPUs"
    with JobStage(Sleeps(str(tmp_path)), where) as stage, pytest.raises(PairmillError, match=told):
        list(stage.run([WorkItem("s", ("a",))], Output(f"{tmp_path}/", "run", 1)))


@dataclass(frozen=True)
class EmbedsOneByOne:
    """A job that runs a model but is not in halves: it notes the items that are in hand, and its GPU."""

    folder: str
    model: str = "clip"

    def __call__(self, item: WorkItem) -> Iterable[Part]:
        note(self.folder, "seen", os.environ["CUDA_VISIBLE_DEVICES"])
        return []


def test_a_job_that_runs_a_model_but_not_in_halves_has_a_gpu_and_no_feeders(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    items = [WorkItem(f"s{n}", ("a",)) for n in range(4)]
    with JobStage(EmbedsOneByOne(str(tmp_path)), Placement()) as stage:
        assert len(list(stage.run(items, Output(f"{tmp_path}/", "run", 1)))) == 4
        asked = stage._compute_resources([Node(16, 1)])
    assert noted(tmp_path, "seen") == ["7"] * 4
    assert asked == Resources(1.0, 1.0, 1, 1)
