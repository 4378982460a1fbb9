"""With Ray every round runs there, however small, unless the run says 'pool'; without Ray none does, however large."""

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run import stage
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.place.resources import Node
from pairmill.tasks.run.pool import pool
from pairmill.tasks.run.stage import CLUSTER_ROWS, SMALL_ROWS, JobStage, is_small
from tests.worlds.sleeping_model import Sleeps

LOCAL = ("", "local")


def items(n: int, rows: int) -> list[WorkItem]:
    return [WorkItem(f"{n}", tuple(map(str, range(rows)))) for n in range(n)]


def test_what_is_small_is_told_by_rows_and_beside_a_cluster_by_items_too():
    for address in LOCAL:
        assert is_small(items(5, SMALL_ROWS // 5), Placement(ray_address=address), True)
        assert not is_small(items(1, SMALL_ROWS + 1), Placement(ray_address=address), True)
    beside = Placement(workers=2, ray_address="auto", small_rounds="pool")
    assert is_small(items(2, 10), beside, True) and not is_small(items(3, 10), beside, True)
    assert is_small(items(3, CLUSTER_ROWS // 3), beside, False)
    assert not is_small(items(3, CLUSTER_ROWS // 3 + 1), beside, False)


class Placed(Exception):
    """Where a round went."""


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """The machines of a cluster that nobody started; a round says where it goes instead of running."""
    nodes = [Node(2, 0)]

    def goes(where: str):
        def run(*_: object) -> None:
            raise Placed(where)

        return run

    monkeypatch.setattr(stage, "start_ray", lambda _: nodes)
    monkeypatch.setattr(stage, "Fleet", goes("ray"))
    monkeypatch.setattr(pool, "run_in_pool", goes("here"))
    return nodes


@pytest.mark.parametrize(
    ("where", "gpus", "goes"),
    [
        (Placement(workers=2, ray_address="local"), 0, "ray"),
        (Placement(workers=2, ray_address="local", small_rounds="pool"), 0, "here"),
        (Placement(workers=2, ray_address="auto"), 0, "ray"),
        (Placement(workers=2, ray_address="auto", small_rounds="pool"), 0, "here"),
        (Placement(workers=2, ray_address="auto", small_rounds="pool"), 1, "ray"),  # the head has no GPU, a node has
        (Placement(workers=2, ray_address="auto", small_rounds="pool", models={"clip": ModelPool(gpus=0)}), 1, "here"),
    ],
)
def test_a_small_round_of_a_model_goes_where_its_placement_says(
    where: Placement, gpus: int, goes: str, places: list[Node], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    places.append(Node(8, gpus))
    with JobStage(Sleeps("nowhere"), where) as held, pytest.raises(Placed, match=goes):
        held.run(items(2, 3), Output("/nowhere/", "run", 1))


def test_without_ray_a_large_round_stays_in_the_pool_too(places: list[Node]):
    with JobStage(Sleeps("nowhere"), Placement(workers=2)) as held, pytest.raises(Placed, match="here"):
        held.run(items(1, SMALL_ROWS + 1), Output("/nowhere/", "run", 1))
