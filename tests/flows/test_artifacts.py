"""What a run leaves in Prefect's interface is told, or missing there, and never costs work."""

import logging
import re

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.with_prefect.artifacts import ProgressArtifacts, _code, _plain
from flows.with_prefect.local_prefect import free_port


def test_progress_that_the_server_does_not_take_is_a_warning(caplog: pytest.LogCaptureFixture):
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{free_port(0)}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody), caplog.at_level(logging.WARNING):
        ProgressArtifacts()("score images", 0, 3)
    assert "score images: its progress could not be shown" in caplog.text


def test_no_name_and_no_text_acts_in_the_markdown_of_an_artifact():
    name = "a](javascript:alert(1)) `<img src=x>` https://evil.example **b**\n# c\x1b[31m"
    text = _plain(name)
    assert "\n" not in text and "\x1b" not in text
    assert not re.search(r"[!-/:-@\[-`{-~]", re.sub(r"\\[!-/:-@\[-`{-~]", "", text))
    assert _code("lake`x``y") == "``` lake`x``y ```"
