"""Two clusterings of pictures: one in which duplicates are searched, one of what is left, which balance caps."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import training
from pairmill.catalog.pending.training import IMAGES, SURVIVORS
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.write.lease import Writer
from pairmill.flows.run.settings import load_recipe
from pairmill.flows.run.survey import Survey
from pairmill.tasks.relate.cluster import ClusterCount, cluster, cluster_survivors
from pairmill.tasks.relate.duplicates import group_duplicates
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.place.placement import Placement
from tests.worlds.line import rows, run_part, with_newest

OF_BALANCE = "SELECT digest FROM scorers WHERE name IN ('balance_centroids', 'balance_clusters')"
CENTROIDS = 'SELECT kind, count(*), n FROM centroids GROUP BY kind, n, "commit" ORDER BY "commit"'


def surveyed(opened: Lake, settings: dict[str, str]) -> Survey:
    """Count what is pending of both clusterings, and of the duplicates between them."""
    plan, _ = identity.with_scorers(compile_plan(load_recipe("demo", settings)))
    seen = Survey(cast(Writer, SimpleNamespace(lake=opened, run_id="")), with_newest(plan, opened), Placement(), ())
    for step in (cluster, group_duplicates, cluster_survivors):
        step(seen)
    return seen


@pytest.mark.slow
def test_balance_is_trained_on_what_duplicates_leave_and_their_search_on_all(curated: Path, settings: dict[str, str]):
    fell = {sha for (sha,) in rows(
        curated, "SELECT i.sha256 FROM decisions d JOIN images i ON i.image_id = d.item_id GROUP BY i.sha256 "
        "HAVING bool_and(dropped_by IN ('duplicate', 'exact_duplicate')) AND bool_or(dropped_by = 'duplicate')",
    )}  # fmt: skip
    with create_or_open(curated, read_only=True) as opened:
        plan = surveyed(opened, settings).plan
        left, among = (
            set(training.sample(opened, plan, kind, 10**6)["key"].to_pylist()) for kind in (SURVIVORS, IMAGES)
        )
    assert len(fell) > 2 and fell <= among and not fell & left and left < among
    of = {kind: (k, n) for kind, k, n in rows(curated, CENTROIDS)}
    assert of["balance"] == (len(left) // 10, len(left)) and of["image"] == (len(among) // 10, len(among))
    assert rows(curated, "SELECT DISTINCT kind FROM clusters WHERE scorer IN (SELECT scorer FROM vector_index) "
                "ORDER BY kind") == [("image",), ("sentence",)]  # fmt: skip


@given(n=st.integers(0, 10**10), at_most=st.integers(1, 10**7), per_cluster=st.integers(1, 1000))
def test_there_are_clusters_for_so_many_rows_each_and_no_more_than_asked_for(n: int, at_most: int, per_cluster: int):
    k = ClusterCount(SURVIVORS, at_most, per_cluster).of(n)
    assert 1 <= k <= at_most
    assert k == 1 or k * per_cluster <= n
    assert k == at_most or (k + 1) * per_cluster > n


def test_the_cap_counts_in_the_clusters_of_balance(curated: Path):
    found = rows(
        curated,
        "SELECT count(*), count(*) FILTER (c.cluster = p.cluster) FROM pairs p JOIN images i USING (image_id) "
        f"JOIN clusters c ON c.key = i.sha256 AND c.scorer IN ({OF_BALANCE})",
    )
    assert found[0][0] == found[0][1] > 30


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "kind", "untouched"),
    [("balance.per_cluster", "balance", {"image", "sentence"}),
     ("duplicates.per_cluster", "image", {"sentence"}),
     ("association.per_cluster", "sentence", {"image"})],
)  # fmt: skip
def test_as_many_clusters_as_rows_to_one_are_asked_for(
    curated_copy: Path, settings: dict[str, str], setting: str, kind: str, untouched: set[str]
):
    before = rows(curated_copy, CENTROIDS)
    with create_or_open(curated_copy, read_only=True) as opened:
        todo = surveyed(opened, settings | {setting: "25"}).found
    trained = {each.work.split()[1]: each.rows for each in todo if each.work.startswith("train ") and each.rows}
    assert trained[kind] and not trained.keys() & untouched
    if kind == "balance":
        run_part(curated_copy, cluster_survivors, settings | {setting: "25"})
        n = trained[kind]
        assert rows(curated_copy, CENTROIDS) == [*before, ("balance", n // 25, n)]
