"""Register two hypothesis profiles and set up the folder that the processes of a test run share.

No test depends on wall time: hypothesis' default deadline of 0.2 s an example is off, because any example may exceed it
on a busy machine.
"""

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from pairmill.catalog.terms.backend import OTHER_PREFIXES, OWN
from pairmill.tasks.run.place.resources import devices
from pairmill.tasks.run.pool import fork_server
from tests.examples import FULL
from tests.worlds import shared

# Only `make test-full` uses the full profile (--hypothesis-profile full); CI does not.
settings.register_profile("quick", deadline=None, max_examples=10)
settings.register_profile("full", deadline=None, max_examples=FULL)
settings.load_profile("quick")

gc.disable()  # while test files are imported: nothing of what they import is garbage

# Ray's workers have the lowest priority but four; beside two other test processes they would get next to no CPU.
os.environ.setdefault("RAY_worker_niceness", "0")

# Test files that take a minute or more, and such a test beside another of its file, the longest first. One that starts
# last would keep one worker busy alone.
LONGEST = (
    "test_readme", "test_readme.py::test_every_command_of_the_documents_runs[of the demo]",
    "tasks/test_steps_on_ray", "flows/test_unfinished_removals", "tasks/test_two_nodes", "flows/test_check",
    "flows/test_takedown", "flows/test_recaption", "endure/test_crash_clones", "tasks/test_vocabulary",
    "tasks/test_stage", "flows/test_up",
    "endure/test_chaos", "flows/test_resume", "flows/test_planted_secrets", "flows/test_killed_recaption",
    "flows/pages/test_report", "flows/test_run", "tasks/test_kept_fleets", "flows/test_several_captioners",
    "flows/test_nothing_to_do", "ops/models/http/test_chat_client", "tasks/test_superseding", "flows/test_full_disk",
    "flows/test_generation", "flows/test_python_api", "flows/test_import_scores", "endure/test_histories",
    "tasks/test_waiting", "flows/test_killed_states", "flows/test_versions", "tasks/test_mixed_nodes",
    "fuzz/test_corruption", "ops/models/test_families", "flows/test_foreign_score", "flows/test_grouped_sentences",
    "flows/test_http_captions", "flows/test_gate", "tasks/test_sentence_duplicates", "flows/test_maintain",
    "flows/browse/test_while_a_run_commits", "demo/test_photographs", "demo/test_truth", "tasks/test_run_limits",
    "tasks/test_ingest_unwell", "flows/test_flows_at_a_server", "flows/test_recaption_prefect", "fuzz/test_hostile",
    "flows/test_retry", "flows/test_alerts",
)  # fmt: skip


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Without a GPU, import test files without torch's compiler, as workers do: it takes 4 CPU s."""
    with pytest.MonkeyPatch.context() as patch:
        if not devices():
            patch.setenv("CUDA_VISIBLE_DEVICES", "")  # read by ops/models/device/quick_imports.py
        return (yield)


@pytest.hookimpl(trylast=True)  # what a marker deselects is dealt to nobody
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deal the longest test files to the workers, each of which begins with its own.

    xdist gives each worker the next of as many equal parts of the list; who is done takes from the end of another's.
    """
    place = {f"tests/{name}" if "::" in name else f"tests/{name}.py": n for n, name in enumerate(LONGEST)}

    def place_of(item: pytest.Item) -> int:
        return place.get(item.nodeid, place.get(item.nodeid.partition("::")[0], len(place)))

    workers = getattr(config, "workerinput", {"workercount": 1})["workercount"]
    begun: list[list[pytest.Item]] = [[] for _ in range(workers)]
    rest: list[pytest.Item] = []
    for item in sorted(items, key=place_of):
        at = place_of(item)
        (rest if at == len(place) else begun[at % workers]).append(item)
    dealt: list[pytest.Item] = []
    for n, part in enumerate(begun):
        room = max(0, (len(items) - len(dealt)) // (workers - n) - len(part))
        dealt += [*part, *rest[:room]]
        del rest[:room]
    items[:] = [*dealt, *rest]


def pytest_collection_finish() -> None:
    """Exempt all that the test files have imported from later garbage collections: each would take 2 CPU s."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Keep Python from a last garbage collection when it exits: it took each worker of a long run 2 to 10 s."""
    gc.disable()
    gc.freeze()


@pytest.fixture
def ray_ends() -> Iterator[None]:
    """Stop Ray after the test. Otherwise its processes take CPU and 1 GB until the last test."""
    yield
    if ray := sys.modules.get("ray"):
        ray.shutdown()


@pytest.fixture
def own_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a temporary folder of its own: what other test processes spill is listed in none of its reports."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


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
            patch.setattr(fork_server, "is_running", lambda: True)  # so that every worker is forked
        yield
