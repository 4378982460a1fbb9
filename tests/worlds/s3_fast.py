"""Thousands of keys at once, and retries without their waits."""

import pytest
from botocore.retries import standard
from moto.s3.models import s3_backends

from pairmill.ops.read.places import s3_requests


def fill(files: dict[str, bytes]) -> None:
    """Put thousands of keys into moto's own memory: by requests it would take longer than what is tested."""
    backend = s3_backends["123456789012"]["aws"]
    for name, data in files.items():
        backend.put_object("corpus", name, data)


@pytest.fixture
def quick(monkeypatch):
    """Waits between requests are the libraries' own business; here they are short."""
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0.005)
    monkeypatch.setattr(s3_requests, "WAITS", (0.005,) * 4)
