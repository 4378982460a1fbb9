"""Model stages on a cluster of unequal machines: who is left out, who feeds how much, which kind of GPU is used."""

from typing import Any

import pytest

from tests.worlds.cluster_script import told_by

NO_ROOM = "model 'large' does not fit the GPU: its weights take 40.0 GB, and 15.0 GB are free"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first waits for the cluster


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What a cluster's script printed; the cluster is started once for all test processes."""
    return told_by("mixed_nodes")


def test_a_machine_whose_card_is_too_small_is_left_out_by_name_and_the_run_goes_on(told: dict[str, Any]):
    assert told["left out"]["rows"] == {"large": 96, "small": 0}
    (note,) = told["left out"]["notes"]
    assert note.startswith("machine ") and note.endswith(f"others do its work: {NO_ROOM}")


def test_replicas_on_a_large_machine_have_its_feeders_beside_a_small_machine(told: dict[str, Any]):
    assert told["feeders"]["large"] == 5  # 8 CPUs a GPU; by the small machine's 3 it would be 1


def test_a_model_goes_to_the_kind_of_gpu_that_it_asks_for_and_the_error_of_the_only_one_ends_the_run(
    told: dict[str, Any],
):
    assert told["no room anywhere"] == NO_ROOM


def test_rays_statistics_name_the_operators_by_the_model(told: dict[str, Any]):
    assert "MapBatches(pairmill model clip)" in told["left out"]["stats"]
    assert "MapBatches(pairmill items of model clip)" in told["left out"]["stats"]
