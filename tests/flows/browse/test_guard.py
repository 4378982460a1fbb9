"""The browser's server answers its own user's own pages alone, and none of its answers lets a script in."""

import subprocess
import sys

import pytest
from starlette.testclient import TestClient

from tests.worlds.browsed import ORIGIN, PORT, TOKEN, Pages

OTHERS = ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1.evil.example:{PORT}", "0.0.0.0:8765", ""]


@pytest.fixture
def stranger(small_pages: Pages) -> TestClient:
    """A client of the same server that has no cookie."""
    return TestClient(small_pages.client.app, base_url=ORIGIN, follow_redirects=False)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/gallery",
        "/acts",
        "/publish?dataset=small",
        "/static/browse.js",
        "/nowhere",
        "/?token=another",
        "/?token=",
    ],
)
def test_nothing_is_shown_without_the_token(stranger: TestClient, path: str):
    answer = stranger.get(path)
    assert answer.status_code == 403 and "set-cookie" not in answer.headers


def test_the_token_moves_from_the_address_into_a_cookie_that_scripts_cannot_read(stranger: TestClient):
    answer = stranger.get(f"/gallery?sort=width&token={TOKEN}&desc=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/gallery?sort=width&desc=1")
    assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=lax" in answer.headers["set-cookie"]
    assert stranger.get("/static/browse.js").status_code == 200


def test_the_token_leads_to_no_other_server(stranger: TestClient):
    assert stranger.get(f"//evil.example/x?token={TOKEN}").headers["location"] == "/x"


@pytest.mark.parametrize("host", OTHERS)
def test_a_name_that_only_resolves_to_this_machine_is_refused(small_pages: Pages, host: str):
    assert small_pages.client.get("/gallery", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"http://127.0.0.1:{PORT + 1}", f"https://localhost:{PORT}"]
)
def test_another_site_can_neither_read_nor_send(small_pages: Pages, origin: str):
    for answer in (
        small_pages.client.get("/gallery", headers={"Origin": origin}),
        *(small_pages.client.post(path, headers={"Origin": origin}) for path in ("/judge", "/acts", "/publish")),
    ):
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    for path in ("/judge", "/acts", "/publish"):
        assert small_pages.client.post(path).status_code == 403


@pytest.mark.parametrize("path", ["/gallery", "/static/pages.css", "/nowhere", "/picture/small/" + "0" * 32])
def test_every_answer_forbids_what_is_not_of_this_server(small_pages: Pages, path: str):
    answer = small_pages.client.get(path)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_starting_imports_neither_torch_nor_pandas_nor_ray():
    code = "import pairmill.flows.browse.application, pairmill.flows.command.lake_commands, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "pandas", "ray", "prefect", "transformers", "faiss"} & set(done.stdout.split())
