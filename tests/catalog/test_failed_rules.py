"""Every rule that an image fails is kept beside the first one, and counted alone and together."""

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.losses.rule_losses import failed_rules
from tests.examples import examples
from tests.reference import cut as slow
from tests.worlds.random_lake import plan, refill, world
from tests.worlds.shared import opened_new


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that holds one random world after the other."""
    with opened_new(tmp_path_factory.mktemp("failed") / "lake") as lake:
        yield lake


def failures(image: slow.Image, dropped_by: str) -> frozenset[str]:
    """The rules that an image of the random world fails; a missing score fails no rule that reads it."""
    found = {dropped_by} - {""}
    if min(image.width, image.height) < 64:
        found.add("short_side")
    if image.sharpness is not None and image.sharpness < 10:
        found.add("sharp")
    return frozenset(found)


@pytest.mark.slow
@given(seed=st.integers(0, 2**32))
@examples(3)
def test_the_counts_are_those_of_the_images_one_by_one(several: Lake, seed: int):
    images, words = world(seed)
    refill(several, images, words)
    made = plan()
    cut(several, made)
    name = publish(several, made, "run", 1.0, lambda: 2)
    dropped = dict(several.query("SELECT image_id, dropped_by FROM cut_images"))
    sets = Counter(failures(image, dropped[image.image_id]) for image in images)
    found = {each.rule: each for each in failed_rules(several, find(several, f"{name.name}@{name.version}"))}
    assert {"short_side", "sharp", "duplicate", "balance"} <= set(found)
    for rule, each in found.items():
        assert each.first == Counter(dropped.values())[rule]
        assert each.failed == sum(n for rules, n in sets.items() if rule in rules)
        assert each.alone == sets[frozenset({rule})]
        assert each.shared == {
            other: sum(n for rules, n in sets.items() if {rule, other} <= rules) for other in found if other != rule
        }
    assert found["sharp"].shared["short_side"] > 0 or found["sharp"].failed == found["sharp"].first
