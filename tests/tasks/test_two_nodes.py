"""Stages on a cluster of two nodes, one with a GPU as Ray counts it: what runs where, who is lost, who joins."""

from collections import Counter
from typing import Any

import pytest

from tests.worlds.cluster_script import told_by

pytestmark = pytest.mark.timeout(1800)  # the first test waits for the cluster


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What one cluster told. The tests may run in several processes, and a cluster takes two minutes."""
    return told_by("two_nodes")


@pytest.mark.slow
def test_cpu_stages_use_all_nodes_and_never_a_gpu_and_a_model_only_the_one_that_has_it(told: dict[str, Any]):
    rows = Counter((row["stage"], row["node"], row["saw"] != "none") for row in told["table"])
    assert rows[("on CPUs", "the node without a GPU", False)] and rows[("on CPUs", "the node with a GPU", False)]
    assert rows[("on a GPU", "the node with a GPU", True)] == 48
    assert sum(rows.values()) == 40 + 48


@pytest.mark.slow
def test_a_fetch_uses_both_nodes_and_a_host_has_its_few_connections_over_the_cluster(told: dict[str, Any]):
    assert told["fetched"]["pictures"] == 2_000 and len(told["fetched"]["nodes"]) == 2
    assert told["fetched"]["most open"] <= 5


@pytest.mark.slow
def test_what_no_node_has_is_refused_in_a_line_that_names_what_each_has(told: dict[str, Any]):
    said = told["refused"]["said"]
    assert "asks for 2 CPUs and 4 GPUs" in said and "2 CPUs, 0 GPUs; 3 CPUs, 1 GPUs" in said and "--model" in said


@pytest.mark.slow
def test_a_node_that_joins_works_and_one_that_is_lost_loses_no_row(told: dict[str, Any]):
    assert told["nodes"]["rows"] == told["nodes"]["distinct"] == 240
    assert told["nodes"]["joined to working"] > 0
