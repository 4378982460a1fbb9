"""What a run leaves in Prefect's interface is told, or missing there, and never costs work."""

import logging
import re
from typing import Any
from uuid import uuid4

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.run.outcome import Outcome, outcome_in
from pairmill.flows.with_prefect.artifacts import (
    ProgressArtifacts,
    _Bar,
    browse_link,
    code,
    create_artifacts,
    plain,
)
from pairmill.flows.with_prefect.local_prefect import free_port
from pairmill.tasks.run.place.progress import Progress
from tests.worlds.line import rows
from tests.worlds.published import published


def test_progress_that_the_server_does_not_take_is_a_warning(caplog: pytest.LogCaptureFixture):
    nobody: Any = {PREFECT_API_URL: f"http://127.0.0.1:{free_port(0)}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody), caplog.at_level(logging.WARNING):
        ProgressArtifacts()(Progress("score images", 0, 3, of_items=1))
    assert "score images: its progress could not be shown" in caplog.text


@pytest.mark.slow
def test_what_a_step_waits_for_stands_beside_its_bar_until_it_goes_on(prefect_api: str):
    said: list[str | None] = []

    @flow
    def run() -> None:
        bars = ProgressArtifacts()
        bars(Progress("captions", 0, 3, of_items=1))
        for text in ("waiting for a node (1 being launched)", "waiting for a node (2 being launched)", ""):
            bars.waiting("captions", text)
            with get_client(sync_client=True) as client:
                (bar,) = [each for each in client.read_artifacts() if str(each.flow_run_id) == str(flow_run.id)]
            said.append(bar.description)
        bars.waiting("a step that has no bar", "waiting for a node")

    with temporary_settings({PREFECT_API_URL: prefect_api}):
        run()
    name = "captions: 3 pictures"
    assert said == [f"{name}; waiting for a node ({n} being launched)" for n in (1, 2)] + [name]


@pytest.mark.slow
def test_a_wait_that_the_server_does_not_take_is_a_warning(caplog: pytest.LogCaptureFixture):
    nobody: Any = {PREFECT_API_URL: f"http://127.0.0.1:{free_port(0)}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    bars = ProgressArtifacts()
    bars._bars["captions"] = _Bar(uuid4(), "captions: 3 pictures", 0.0)
    with temporary_settings(nobody), caplog.at_level(logging.WARNING):
        bars.waiting("captions", "waiting for a node")
        bars.waiting("captions", "")
    assert "captions: waiting for a node could not be shown" in caplog.text
    assert "captions: that it goes on could not be shown" in caplog.text


def test_no_name_and_no_text_acts_in_the_markdown_of_an_artifact():
    name = "a](javascript:alert(1)) `<img src=x>` https://evil.example **b**\n# c\x1b[31m"
    text = plain(name)
    assert "\n" not in text and "\x1b" not in text
    assert not re.search(r"[!-/:-@\[-`{-~]", re.sub(r"\\[!-/:-@\[-`{-~]", "", text))
    assert code("lake`x``y") == "``` lake`x``y ```"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    lake = tmp_path_factory.mktemp("shown") / "lake"
    published(lake, pictures=30, cap=3, clusters=3)
    with create_or_open(lake, read_only=True) as opened:
        return outcome_in(opened, "small")


@pytest.mark.slow  # 10 s: a Prefect server
def test_no_text_address_or_picture_reaches_prefects_database(
    found: Outcome, prefect_api: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PAIRMILL_BROWSE_URL", "http://127.0.0.1:8765")

    @flow
    def run() -> None:
        create_artifacts(found)

    with temporary_settings({PREFECT_API_URL: prefect_api}), get_client(sync_client=True) as client:
        run()
        stored = {each.key: str(each.data) for each in client.read_artifacts(limit=200) if each.key}
    known = ["pairs-small", "funnel-small"]
    said = " ".join(stored[key] for key in known)
    taken = rows(found.lake, "SELECT image_id, sha256, raw_image_url, text1 FROM pairs")
    assert (
        found.report in said
        and "/gallery?dataset=small%401&fate=kept" in said
        and "/report?dataset=small%401)" in said
        and "data:" not in said
    )
    assert len(taken) == 9 and not [value for row in taken for value in row if value and value in said]


@pytest.mark.parametrize(
    ("url", "link"),
    [
        ("http://127.0.0.1:8765/?token=secret", "http://127.0.0.1:8765/report?dataset=small%401"),
        ("https://me:word@lake.example/pairmill/", "https://lake.example/pairmill/report?dataset=small%401"),
        ("", ""), ("file:///etc/passwd", ""), ("javascript:alert(1)", ""), ("127.0.0.1:8765", ""),
    ],
)  # fmt: skip
def test_the_report_is_linked_where_a_browser_serves_it(
    found: Outcome, monkeypatch: pytest.MonkeyPatch, url: str, link: str
):
    monkeypatch.setenv("PAIRMILL_BROWSE_URL", url)
    assert browse_link("report", str(found.dataset)) == link
