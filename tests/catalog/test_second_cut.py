"""The cut equals its slow twin, which computes each decision and text of a version a second time."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.upkeep.amended_versions import is_as_published
from tests.examples import examples
from tests.reference.second_cut import differences
from tests.worlds.random_lake import SCORERS, plan, refill, world
from tests.worlds.shared import opened_new


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that holds one random world after the other."""
    with opened_new(tmp_path_factory.mktemp("verified") / "lake") as opened:
        names, digests = map(list, zip(*SCORERS.items(), strict=True))
        opened.insert("scorers", pa.table({"name": names, "digest": digests}))
        yield opened


def published(lake: Lake, seed: int, made: Plan) -> Dataset:
    refill(lake, *world(seed))
    cut(lake, made)
    found = publish(lake, made, "run", 1.0, lambda: 2)
    return find(lake, f"{found.name}@{found.version}")


@given(
    seed=st.integers(0, 2**32),
    made=st.sampled_from((plan(), plan(cap=1), plan(max_uses=1), plan(min_side=100), plan(at_least=2))),
)
@examples(8)
@pytest.mark.slow
def test_the_cut_decides_as_its_twin(lake: Lake, seed: int, made: Plan):
    dataset = published(lake, seed, made)
    assert differences(lake, dataset) == {}
    assert lake.query(f"SELECT count(*) FROM decisions WHERE version = {dataset.version} AND kind = 'image'") == [(80,)]


@pytest.mark.slow
def test_each_decision_and_text_that_was_changed_is_named(lake: Lake):
    dataset = published(lake, 3, plan())
    of_version = f"dataset = 'small' AND version = {dataset.version}"
    kept = [image for (image,) in lake.query(f"SELECT image_id FROM pairs WHERE {of_version} ORDER BY 1")]
    (dropped, rule), *_ = lake.query(
        f"SELECT item_id, dropped_by FROM decisions WHERE {of_version} AND dropped_by = 'short_side' ORDER BY 1"
    )
    lake.execute(f"UPDATE decisions SET dropped_by = 'balance' WHERE {of_version} AND item_id = '{kept[0]}'")
    lake.execute(f"UPDATE decisions SET dropped_by = '' WHERE {of_version} AND item_id = '{dropped}'")
    lake.execute(f"UPDATE pairs SET text1 = 'another' WHERE {of_version} AND image_id = '{kept[1]}'")
    lake.execute(f"DELETE FROM decisions WHERE {of_version} AND item_id = '{kept[2]}'")
    found = differences(lake, dataset)
    assert found.keys() == {kept[0], kept[1], kept[2], dropped}
    assert found[kept[0]] == ("balance", "") and found[kept[2]] == ("no decision", "")
    assert found[dropped] == ("", rule)
    assert "another" in found[kept[1]][0] and "another" not in found[kept[1]][1]
    assert not is_as_published(lake, dataset)
