"""A fleet on a Ray cluster serves all steps and waves that need its model, and ends when another needs the room."""

from typing import Any

import pytest

from tests.worlds.cluster_script import told_by

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]  # the first waits for the cluster


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """How often [clip, captioner] had been loaded after each step. The tests may run in several processes."""
    return told_by("kept_fleets")


def test_each_replica_loads_its_model_once_over_rounds_and_steps(told: dict[str, Any]):
    assert told["two rounds"] == told["another step"] == [2, 0]


def test_a_fleet_ends_when_another_model_needs_its_room(told: dict[str, Any]):
    assert told["another model, twice"] == [2, 2]


def test_the_fleet_of_a_step_that_failed_is_not_kept(told: dict[str, Any]):
    assert "range() arg 3" in told["bug"]
    assert told["after a failed step"] == [2, 4]


def test_no_fleet_holds_a_gpu_after_the_run(told: dict[str, Any]):
    assert told["GPUs free at the end"] == 2.0
