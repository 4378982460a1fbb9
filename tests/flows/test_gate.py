"""The gate of curate at a real Prefect server: declined, asked again, approved with a changed threshold."""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterKey, FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import StateType
from prefect.settings import PREFECT_API_URL, temporary_settings

from pairmill.catalog.lake.lease_row import holder_of
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.flow_runs import answer, ended
from tests.worlds.line import rows

CURATE = "pairmill.flows.with_prefect.deployments.curate"
CHANGE = {"images.short_side.keep": "least(width, height) >= 90"}


def paused(client: SyncPrefectClient, name: str, times: int = 1) -> UUID:
    """Wait until the run of this name has paused so many times, and return its id."""
    deadline = time.monotonic() + 500
    while time.monotonic() < deadline:
        for run in client.read_flow_runs(flow_run_filter=FlowRunFilter.model_validate({"name": {"any_": [name]}})):
            assert run.state is not None and not (run.state.is_final() and run.state.type != StateType.CANCELLED)
            states = client.read_flow_run_states(run.id)
            if run.state.type == StateType.PAUSED and sum(each.type == StateType.PAUSED for each in states) == times:
                return run.id
        time.sleep(0.5)
    raise TimeoutError(name)


def gallery_of(client: SyncPrefectClient, run: UUID) -> str:
    """Return the Markdown that the run shows beside its form."""
    (found,) = client.read_artifacts(
        artifact_filter=ArtifactFilter(key=ArtifactFilterKey(any_=["thresholds"])),
        flow_run_filter=FlowRunFilter(id=FlowRunFilterId(any_=[run])),
    )
    return str(found.data)


@pytest.mark.slow  # a Prefect server, and two runs in a process that waits for answers
@pytest.mark.timeout(900)
def test_a_run_waits_without_the_lease_and_goes_on_by_what_a_person_answers(
    prefect_api: str, curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    given: dict[str, Any] = {
        "lake": str(curated_copy),
        "sources": [str(pages)],
        "overrides": settings,
        "compute": {"workers": 2},
        "approve_thresholds": True,
    }
    before = rows(curated_copy, "SELECT count(*) FROM datasets")
    server = temporary_settings({PREFECT_API_URL: prefect_api})
    with server, get_client(sync_client=True) as client, ThreadPoolExecutor(1) as threads:
        runs = [(CURATE, given, "gate one"), (CURATE, given, "gate two")]
        both = threads.submit(ended, prefect_api, tmp_path / "home", runs)
        answer(client, paused(client, "gate one"), {"approve": False, "by": "Ada"})
        run = paused(client, "gate two")
        shown = gallery_of(client, run)
        with create_or_open(str(curated_copy), read_only=True) as lake:
            assert holder_of(lake.metadata) is None
        answer(client, run, {"approve": True, "by": "Bo", "changes": {"balance.cap": "1"}})
        paused(client, "gate two", times=2)  # a setting that is no rule's: asked again
        answer(client, run, {"approve": True, "by": "Bo", "changes": CHANGE})
        declined, approved = both.result(600)
    assert "`least(width, height) >= 64`" in shown and "whole_text" not in shown
    assert "data:" not in shown and "dropped" in shown and "kept" in shown
    page = Path(re.findall(r"- The pictures: `(.+)`", shown)[0]).read_text()
    assert page.count("data:image/webp;base64,") > 4 and "least(width, height) &gt;= 64" in page
    assert declined.state == "Declined" and "declined by Ada" in declined.message, declined
    assert approved.name == "gate two" and approved.state == "Completed" and "published" in approved.message, approved
    notes = [text for (text,) in rows(curated_copy, "SELECT detail FROM runs WHERE detail <> '' ORDER BY started_at")]
    assert [note.partition(" at ")[0] for note in notes] == [
        "note: thresholds declined by Ada", *["note: thresholds approved by Bo"] * 2,
    ]  # fmt: skip
    assert all("least(width, height) >= 90" in note for note in notes[1:])
    assert rows(curated_copy, "SELECT count(*) FROM datasets")[0][0] == before[0][0] + 1
    recipe = rows(curated_copy, "SELECT recipe FROM datasets ORDER BY version DESC LIMIT 1")[0][0]
    assert "least(width, height) >= 90" in recipe
