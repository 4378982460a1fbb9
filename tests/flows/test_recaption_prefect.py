"""Recaption on a real Prefect server: paused until a person approves the first captions, with what they are shown."""

import time
from pathlib import Path

import httpx
import pytest

from tests.flows.line import rows
from tests.flows.test_recaption import add_pictures
from tests.flows.test_up import asked, staying

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]
FIRST, N = 200, 204


def until(client: httpx.Client, run: str, *wanted: str) -> dict:
    """The run's state, once it is one of these."""
    deadline = time.monotonic() + 400
    while (state := client.get(f"/flow_runs/{run}").json()["state"])["type"] not in wanted:
        assert state["type"] not in ("FAILED", "CRASHED") and time.monotonic() < deadline, state
        time.sleep(1)
    return state


def started(client: httpx.Client, lake: Path, photos: Path) -> str:
    deployment = client.get("/deployments/name/recaption/all").json()["id"]
    parameters = {
        "sources": [str(photos)],
        "lake": str(lake),
        "recipe": "demo",
        "models": "demo",
        "approve_first": True,
    }
    parameters |= {"to": str(lake.parent / "out")}
    return client.post(f"/deployments/{deployment}/create_flow_run", json={"parameters": parameters}).json()["id"]


def answered(client: httpx.Client, run: str, approve: bool) -> None:
    """What the Resume button does, once the form is filled in."""
    done = client.post(f"/flow_runs/{run}/resume", json={"run_input": {"approve": approve}}).json()
    assert done["status"] == "ACCEPT", done


def test_a_run_waits_for_a_person_and_spends_on_the_rest_only_when_it_is_approved(tmp_path: Path):
    home, lake, photos = tmp_path / "prefect", tmp_path / "lake", tmp_path / "photos"
    add_pictures(photos, 0, N)
    with staying(home, lake) as (_, api), httpx.Client(base_url=api, timeout=60) as client:
        refused = started(client, lake, photos)
        until(client, refused, "PAUSED")
        assert rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        answered(client, refused, approve=False)
        deadline = time.monotonic() + 200
        while (state := client.get(f"/flow_runs/{refused}").json()["state"])["type"] != "FAILED":
            assert time.monotonic() < deadline, state
            time.sleep(1)
        assert "were not approved" in state["message"] and rows(lake, "SELECT count(*) FROM captions") == [(FIRST,)]
        approved = started(client, lake, photos)
        until(client, approved, "PAUSED")
        answered(client, approved, approve=True)
        done = until(client, approved, "COMPLETED")
    assert rows(lake, "SELECT count(*), count(DISTINCT sha256) FROM captions") == [(N, N)]
    assert f"{N} ok" in done["message"] and (tmp_path / "out" / "manifest.json").is_file()
    kept = dict(asked(home, "SELECT key, data FROM artifact"))
    assert kept["first-captions"].count("\\n- **") == FIRST
    assert "captions-" in kept["first-captions-strip"] and "caption-rate" in kept
    said = [text for (text,) in asked(home, "SELECT description FROM artifact WHERE key = 'caption-rate'")]
    assert any("tokens/s" in text for text in said)
