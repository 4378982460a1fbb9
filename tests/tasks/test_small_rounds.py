"""With Ray every round runs there, however small; without Ray none does, however large."""

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run import stage
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import Node
from pairmill.tasks.run.pool import pool
from pairmill.tasks.run.stage import JobStage
from tests.worlds.sleeping_model import Sleeps


def items(n: int, rows: int) -> list[WorkItem]:
    return [WorkItem(f"{n}", tuple(map(str, range(rows)))) for n in range(n)]


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


@pytest.mark.parametrize(("address", "goes"), [("", "here"), ("local", "ray"), ("auto", "ray")])
@pytest.mark.parametrize("rows", [3, 100_000])
def test_a_round_goes_where_its_placement_says_however_many_rows_it_has(
    address: str, goes: str, rows: int, places: list[Node]
):
    where = Placement(workers=2, ray_address=address)
    with JobStage(Sleeps("nowhere"), where) as held, pytest.raises(Placed, match=goes):
        held.run(items(2, rows), Output("/nowhere/", "run", 1))
