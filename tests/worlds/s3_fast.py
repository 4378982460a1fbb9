"""Thousands of S3 keys at once, and retries without their delays."""

import pytest
from botocore.retries import standard
from moto.s3.models import s3_backends

from pairmill.ops.read.places import s3


def fill(files: dict[str, bytes]) -> None:
    """Put thousands of keys directly into moto's memory: by requests it would take longer than the test itself."""
    backend = s3_backends["123456789012"]["aws"]
    for name, data in files.items():
        backend.put_object("corpus", name, data)


@pytest.fixture
def quick(monkeypatch):
    """Shorten the delays between retries, which belong to the libraries."""
    monkeypatch.setattr(standard.ExponentialBackoff, "delay_amount", lambda *_: 0.005)
    monkeypatch.setattr(s3, "WAITS", (0.005,) * 4)
