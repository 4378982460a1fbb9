"""`balance.fewer`: a cluster's own cap, in a re-cut, in `why`, in the second cut, and in no older recipe's identity."""

from pathlib import Path

import pytest

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.verification import verify
from pairmill.catalog.recipe.parts_of_balance import Balance
from pairmill.catalog.terms.error import PairmillError
from tests.worlds.commands import Tell


def test_one_cluster_keeps_fewer_and_why_and_verify_know_it(curated_copy: Path, tell: Tell):
    with pm.open(curated_copy) as lake:
        lake.recut("demo@1", {"balance.cap": 8})
        before = {each.cluster: each.kept for each in lake.clusters("demo@2")}
        cluster = max(before, key=lambda each: before[each])
        lake.recut("demo@2", {"balance.fewer": {cluster: 0.25}})
        after = {each.cluster: each.kept for each in lake.clusters("demo@3")}
        dropped = lake.sql(
            "SELECT item_id FROM decisions WHERE version = 3 AND dropped_by = 'balance' "
            f"AND value LIKE 'cluster={cluster} %' LIMIT 1"
        ).fetchall()
    assert before[cluster] > 2 and after == {**before, cluster: 2}
    place = ("--lake", str(curated_copy))
    assert "cap 2 by balance.fewer" in tell("why", dropped[0][0], "--dataset", "demo@3", *place)
    assert "--set 'balance.fewer={" in tell("clusters", "demo@3", *place)
    with create_or_open(curated_copy, read_only=True) as lake:
        found = verify(lake, datasets.find(lake, "demo@3"))
    assert found.differing == 0 and found.images > 20


def test_a_share_is_of_the_cap_and_no_cap_grows():
    assert Balance(cap=35, fewer={3: 0.5, 4: 7, 5: 90, 6: 0.001}).lower_caps == {3: 18, 4: 7, 6: 1}  # pyright: ignore[reportCallIssue]
    assert "fewer" not in Balance(cap=35).model_dump()  # pyright: ignore[reportCallIssue]


def test_fewer_without_a_cap_is_refused_with_a_remedy(curated: Path):
    with pm.open(curated) as lake, pytest.raises(PairmillError, match="give `cap` a number"):
        lake.try_recut("demo@1", {"balance.cap": "none", "balance.fewer": {1: 0.5}})
