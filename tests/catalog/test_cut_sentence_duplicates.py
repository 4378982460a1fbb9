"""Of a group of duplicate sentences the cut gives the smallest that survives, in the place of any of them."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish, sentence_funnel
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.explain.why import Scope
from pairmill.catalog.queries.explain.why_sentence import explain_sentence
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from tests.examples import examples
from tests.reference import cut as slow
from tests.worlds import random_lake
from tests.worlds.random_lake import CAP, MAX_USES, SEED, TOP_K, fill, refill, world
from tests.worlds.shared import opened_new

SCORERS = random_lake.SCORERS | {"sentence_groups": "sg"}


def plan(fewest: int, most: int) -> Plan:
    """The plan of the cut's own tests with duplicates of sentences, and rules on their length and their repeats."""
    settings = random_lake.plan().recipe.model_dump(mode="json")
    rules = [{"name": "length", "keep": f"n_words >= {fewest}"}, {"name": "repeats", "keep": f"repeats <= {most}"}]
    return compile_plan(Recipe.model_validate(settings | {"sentences": rules, "sentence_duplicates": {}}), SCORERS)


def group(lake: Lake, groups: dict[str, str], commit: int = 1) -> None:
    """Store groups (sentence -> its group's smallest), and before them a grouping that no longer counts."""
    rows = {"content": list(groups), "group_id": list(groups.values()), "scorer": ["sg"] * len(groups)}
    lake.insert("sentence_groups", pa.table(rows | {"commit": pa.array([commit] * len(groups), pa.int64())}))


def grouped(names: list[str], at_most: int) -> dict[str, str]:
    """Deal the first ``at_most`` sentences, mixed, out to some groups of two and more."""
    members: dict[int, list[str]] = {}
    for name in random.sample(names, at_most):
        members.setdefault(random.randint(0, 3), []).append(name)
    return {name: min(group) for group in members.values() if len(group) > 1 for name in group}


def forget(lake: Lake, names: set[str]) -> None:
    """Have the documents of these sentences gone."""
    listed = ", ".join(f"'{name}'" for name in names) or "NULL"
    lake.execute(f"UPDATE sentences SET document_id = 'gone' WHERE content IN ({listed})")
    lake.insert("superseded", pa.table({"document_id": ["gone"], "gone": [True], "commit": [1]}))


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that holds one random world after the other."""
    with opened_new(tmp_path_factory.mktemp("several") / "lake") as lake:
        yield lake


@given(
    seed=st.integers(0, 2**32),
    fewest=st.sampled_from((0, 3, 6)),
    most=st.integers(1, 3),
    at_most=st.integers(0, 25),
    n_gone=st.integers(0, 8),
)
@examples(20)
@pytest.mark.slow
def test_texts_are_those_of_the_slow_twin_under_any_rules_and_groups(
    several: Lake, seed: int, fewest: int, most: int, at_most: int, n_gone: int
):
    lake = several
    images, words = world(seed)
    groups = grouped(sorted(words), at_most)
    gone = set(random.sample(sorted(words), n_gone))
    refill(lake, images, words)
    group(lake, dict.fromkeys(sorted(words), "s00"), commit=0)
    group(lake, groups)
    forget(lake, gone)
    cut(lake, plan(fewest, most))
    texts: dict[str, list[str]] = {}
    for image_id, content in lake.query("SELECT image_id, content FROM cut_texts ORDER BY image_id, place"):
        texts.setdefault(image_id, []).append(content)
    funnel = sentence_funnel(lake, plan(fewest, most))
    survivors = {name for name, (n, repeats) in words.items() if n >= fewest and repeats <= most and name not in gone}
    of_group = {name: groups.get(name, name) if groups else "s00" for name in words}
    images = [image if image.group <= "p60" else replace(image, group=image.sha256) for image in images]
    _, expected = slow.cut(images, survivors, 64, 10.0, CAP, TOP_K, MAX_USES, SEED, of_group)
    assert texts == expected
    keepers = {min(name for name in survivors if of_group[name] == each) for each in map(of_group.get, survivors)}
    assert {name for given_texts in texts.values() for name in given_texts} <= keepers
    assert funnel[-1] == ("duplicate", len(survivors), len(survivors) - len(keepers))


def _world_of_one(lake: Lake) -> None:
    """A picture whose nearest sentences are three copies, of which one is too short, and then another sentence."""
    near = [("s02", 0.9), ("s01", 0.8), ("s00", 0.7), ("s03", 0.1)]
    image = slow.Image("i", "p", 100, 100, 10, 50.0, "p", None, 0, "", near)
    fill(lake, [image], {"s00": (2, 1), "s01": (5, 1), "s02": (5, 1), "s03": (5, 1)})
    group(lake, dict.fromkeys(("s00", "s01", "s02"), "s00"))


def test_a_changed_rule_gives_another_keeper_without_new_groups(tmp_path: Path):
    given_by = {}
    with opened_new(tmp_path / "lake") as lake:
        _world_of_one(lake)
        for fewest in (0, 3):
            cut(lake, plan(fewest, 3))
            given_by[fewest] = lake.query("SELECT content, similarity FROM cut_texts ORDER BY place")
    assert given_by == {0: [("s00", 0.9), ("s03", 0.1)], 3: [("s01", 0.9), ("s03", 0.1)]}


@pytest.mark.slow
def test_a_published_version_says_how_many_fell_and_which_sentence_stands_for_one(tmp_path: Path):
    with opened_new(tmp_path / "lake") as lake:
        _world_of_one(lake)
        made = plan(3, 3)
        cut(lake, made)
        publish(lake, made, "run", None, lambda: 2)
        again = sentence_funnel(lake, made)
        funnel = lake.query("SELECT rule, n_in, n_dropped FROM funnel WHERE kind = 'sentence' ORDER BY position")
        scope = Scope(frozenset({"sentence_groups", "sentence_quality"}), None, made)
        explained = {name: explain_sentence(lake, name, scope)["group"] for name in ("s00", "s01", "s02", "s03")}
    assert funnel == again == [("same_text", 4, 0), ("repeats", 4, 0), ("length", 4, 1), ("duplicate", 3, 1)]
    keeper = {"sentences": 3, "keeper": {"content": "s01", "text": "text s01"}}
    assert explained == {"s00": keeper, "s01": keeper, "s02": keeper, "s03": {}}
