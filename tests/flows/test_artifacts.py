"""What a run leaves in Prefect's interface is told, or missing there, and never costs work."""

import logging

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

from flows.with_prefect.artifacts import ProgressArtifacts
from flows.with_prefect.local_prefect import free_port


def test_progress_that_the_server_does_not_take_is_a_warning(caplog: pytest.LogCaptureFixture):
    nobody = {PREFECT_API_URL: f"http://127.0.0.1:{free_port(0)}/api", PREFECT_CLIENT_MAX_RETRIES: 0}
    with temporary_settings(nobody), caplog.at_level(logging.WARNING):
        ProgressArtifacts()("score images", 0, 3)
    assert "score images: its progress could not be shown" in caplog.text
