"""The recipe captions on a real Prefect server: paused until a person approves its first captions, which are shown."""

import time
from pathlib import Path
from uuid import UUID

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import State, StateType

from tests.worlds.flow_runs import answer
from tests.worlds.line import rows
from tests.worlds.photos import add_pictures
from tests.worlds.prefect_up import asked, staying

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
FIRST, N = 200, 204


def until(client: SyncPrefectClient, run: UUID, wanted: StateType) -> State:
    """The run's state, once it is of this type; another at which a run ends fails the test."""
    deadline = time.monotonic() + 400
    while (state := client.read_flow_run(run).state) is None or state.type != wanted:
        assert not (state and state.is_final()) and time.monotonic() < deadline, state
        time.sleep(1)
    return state


def started(client: SyncPrefectClient, lake: Path, photos: Path) -> UUID:
    deployment = client.read_deployment_by_name("curate/captions").id
    parameters = {
        "sources": [str(photos)],
        "lake": str(lake),
        "recipe": "captions",
        "models": "demo",
        "approve_thresholds": True,
    }
    return client.create_flow_run_from_deployment(deployment, parameters=parameters).id


def test_a_run_waits_for_a_person_and_spends_on_the_rest_only_when_it_is_approved(tmp_path: Path):
    home, lake, photos = tmp_path / "prefect", tmp_path / "lake", tmp_path / "photos"
    add_pictures(photos, 0, N)
    # Prefect's own client asks again where its server's SQLite was busy for a moment (503), as its interface does.
    with staying(home, lake) as (_, api), SyncPrefectClient(api) as client:
        refused = started(client, lake, photos)
        until(client, refused, StateType.PAUSED)
        assert rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        answer(client, refused, {"approve": False, "by": "me"})
        state = until(client, refused, StateType.CANCELLED)
        assert state.name == "Declined" and "declined by me" in (state.message or "")
        assert rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        approved = started(client, lake, photos)
        until(client, approved, StateType.PAUSED)
        answer(client, approved, {"approve": True, "by": "me"})
        done = until(client, approved, StateType.COMPLETED)
    assert rows(lake, "SELECT count(*), count(DISTINCT sha256) FROM captions") == [(N, N)]
    assert (done.message or "").startswith(f"captions@1: {N} pairs, published")
    kept = dict(asked(home, "SELECT key, data FROM artifact"))
    assert "captions-" in kept["first-captions"] and "file:" not in kept["first-captions"] and "caption-rate" in kept
    said = [text for (text,) in asked(home, "SELECT description FROM artifact WHERE key = 'caption-rate'")]
    assert any("tokens/s" in text for text in said)
