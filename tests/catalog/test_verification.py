"""A version's decisions are computed a second time by other code, and what differs is named."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare import verification
from pairmill.catalog.queries.compare.verification import verify
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError
from tests.examples import examples
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


def differing(lake: Lake, dataset: Dataset) -> dict[str, tuple[str, str]]:
    return {each.image_id: (each.stored, each.found) for each in verify(lake, dataset).shown}


@given(
    seed=st.integers(0, 2**32),
    made=st.sampled_from((plan(), plan(cap=1), plan(max_uses=1), plan(min_side=100), plan(at_least=2))),
    whole=st.sampled_from((200_000, 30)),
)
@examples(8)
def test_what_was_published_agrees_whole_and_by_sample(lake: Lake, seed: int, made: Plan, whole: int):
    dataset = published(lake, seed, made)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verification, "WHOLE", whole)
        found = verify(lake, dataset)
    assert (found.differing, found.shown) == (0, ()) and found.of == 80
    assert found.images == 80 if whole > 80 else found.images < 80
    assert found.pairs == (dataset.n_pairs if whole > 80 else 0)


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
    found = differing(lake, dataset)
    assert found.keys() == {kept[0], kept[1], kept[2], dropped}
    assert found[kept[0]] == ("dropped by 'balance'", "kept") and found[kept[2]] == ("no decision", "kept")
    assert found[dropped] == ("kept", f"dropped by '{rule}'")
    assert "another" in found[kept[1]][0] and "another" not in found[kept[1]][1]


def test_a_score_that_changed_afterwards_shows(lake: Lake):
    dataset = published(lake, 5, plan())
    lake.execute("UPDATE image_quality SET sharpness = 5 WHERE sharpness >= 10")
    found = verify(lake, dataset)
    assert found.differing > 0 and all(each.found == "dropped by 'sharp'" for each in found.shown)


def test_a_version_whose_rows_are_gone_is_refused(lake: Lake):
    dataset = published(lake, 6, plan())
    with pytest.raises(PairmillError, match="was changed by more than its removals record"):
        verify(lake, replace(dataset, amended=True))
    lake.execute("UPDATE images SET commit = 9 WHERE image_id = 'i001'")
    with pytest.raises(PairmillError, match=r"the pages of 1 images of small@\d+ were read again since"):
        verify(lake, dataset)
