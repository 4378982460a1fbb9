"""The recipe captions on a real Prefect server: paused until a person approves its first captions, which are shown."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import Artifact, StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

from tests.worlds.flow_runs import ended
from tests.worlds.line import rows
from tests.worlds.photos import add_pictures

CURATE = "pairmill.flows.with_prefect.deployments.curate"
FIRST, N = 8, 24
FEW_FIRST = {"pairmill.tasks.generate.caption.FIRST": FIRST, "pairmill.tasks.generate.caption.FIRST_ITEM": 4}


def paused(client: SyncPrefectClient, name: str) -> UUID:
    """Return the id of the run of this name, once it is paused; one that ends fails the test."""
    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate({"name": {"any_": [name]}})):
            assert run.state is not None and not run.state.is_final(), run.state
            if run.state.type == StateType.PAUSED:
                return run.id
        time.sleep(0.5)
    raise TimeoutError(name)


def answered(client: SyncPrefectClient, run: UUID, approve: bool) -> None:
    """What the Resume button does, once the form is filled in."""
    done = client.resume_flow_run(run, run_input={"approve": approve, "by": "me"})
    assert done.status == "ACCEPT", done


def artifacts(client: SyncPrefectClient, run: UUID, key: str) -> list[Artifact]:
    """Return what the run shows under a key."""
    of_run = FlowRunFilter(id=FlowRunFilterId(any_=[run]))
    return [each for each in client.read_artifacts(flow_run_filter=of_run) if each.key == key]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_waits_for_a_person_and_spends_on_the_rest_only_when_it_is_approved(prefect_api: str, tmp_path: Path):
    lake, photos = tmp_path / "lake", tmp_path / "photos"
    add_pictures(photos, 0, N)
    given = {"sources": [str(photos)], "lake": str(lake), "recipe": "captions", "models": "demo"}
    given |= {"approve_thresholds": True, "compute": {"workers": 2}}
    runs = [(CURATE, given, "captions refused"), (CURATE, given, "captions approved")]
    server = temporary_settings({PREFECT_API_URL: prefect_api})
    with server, get_client(sync_client=True) as client, ThreadPoolExecutor(1) as threads:
        both = threads.submit(ended, prefect_api, tmp_path / "home", runs, FEW_FIRST)
        refused = paused(client, "captions refused")
        assert rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        answered(client, refused, approve=False)
        approved = paused(client, "captions approved")
        assert rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        answered(client, approved, approve=True)
        declined, done = both.result(600)
        (first,) = artifacts(client, approved, "first-captions")
        rates = artifacts(client, approved, "caption-rate")
    assert declined.state == "Declined" and "declined by me" in declined.message
    assert rows(lake, "SELECT count(*), count(DISTINCT sha256) FROM captions") == [(N, N)]
    assert done.state == "Completed" and done.message.startswith(f"captions@1: {N} pairs, published")
    assert "captions-" in str(first.data) and "file:" not in str(first.data)
    assert any("tokens/s" in (each.description or "") for each in rates)
