"""Register two hypothesis profiles and set up the folder that the processes of a test run share.

No test depends on wall time: hypothesis' default deadline of 0.2 s an example is off, because any example may exceed it
on a busy machine.
"""

import gc
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from pairmill.catalog.terms.backend import OTHER_PREFIXES, OWN
from pairmill.tasks.run import fork_server
from tests.examples import FULL
from tests.worlds import shared

# Only `make test-full` uses the full profile (--hypothesis-profile full); CI does not.
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("full", deadline=None, max_examples=FULL)
settings.load_profile("quick")

# Test files by CPU seconds over both tiers. A long file that starts last would keep one core busy and the other idle.
LONGEST_FIRST = (
    "demo/test_truth", "flows/test_served_captioner", "fuzz/test_corruption", "test_readme", "endure/test_chaos",
    "endure/test_crash_clones", "flows/test_planted_secrets", "flows/test_flows_at_a_server", "flows/test_gate",
    "flows/test_alerts", "flows/test_takedown", "flows/test_check", "flows/test_schedule", "flows/test_up",
    "flows/test_recaption_prefect", "flows/test_resume", "flows/test_killed_states", "tasks/test_vocabulary",
    "tasks/test_waiting", "tasks/test_two_nodes", "flows/test_recaption", "flows/test_generation", "flows/test_balance",
    "flows/test_run", "flows/test_http_captions", "flows/test_retry", "flows/test_several_captioners",
    "flows/test_foreign_score", "tasks/test_superseding", "tasks/test_superseding_tables",
    "tasks/test_sentence_duplicates",
    "flows/test_commands_read", "catalog/test_wanted", "catalog/test_cut", "catalog/test_facts", "catalog/test_lake",
    "tasks/test_calibrate", "tasks/test_export", "tasks/test_report", "tasks/test_released_address",
)  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the test files that take longest."""
    place = {f"tests/{name}.py": n for n, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.nodeid.partition("::")[0], len(place)))


def pytest_collection_finish() -> None:
    """Exempt all that the test files have imported from later garbage collections: each would take 2 CPU s."""
    gc.freeze()


@pytest.fixture
def ray_ends() -> Iterator[None]:
    """Stop Ray after the test. Otherwise its processes take CPU and 1 GB until the last test."""
    yield
    if ray := sys.modules.get("ray"):
        ray.shutdown()


@pytest.fixture(scope="session", autouse=True)
def _shared_place(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> None:
    """Create the shared folder: next to the temporary folders of all workers, or inside that of a single process."""
    own = tmp_path_factory.getbasetemp()
    shared.PLACE = (own if worker_id == "master" else own.parent) / "shared"
    shared.PLACE.mkdir(exist_ok=True)


@pytest.fixture(scope="session", autouse=True)
def _fork_server_for_every_model(worker_id: str) -> Iterator[None]:
    """Have the fork server of a test process import the libraries of all models, whichever test starts it.

    It starts once a process. If a test without models started it, each worker of each later run would import these
    libraries by itself, for 6 CPU s. A process that runs a test or two has no later runs.
    """
    with pytest.MonkeyPatch.context() as patch:
        if worker_id != "master":
            fork_server.preload(f"{prefix}x" for prefix in (*OTHER_PREFIXES, *(each.prefix for each in OWN)))
            patch.setattr(fork_server, "preload", lambda specs: None)
        yield
