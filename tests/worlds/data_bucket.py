"""Fixture: a moto S3 server for one test, with an empty bucket `data`."""

import boto3
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch):
    """Start the server, point the AWS variables at it, and yield a boto3 client."""
    import s3fs

    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (("ENDPOINT_URL", f"http://{host}:{port}"), ("ACCESS_KEY_ID", "t"), ("SECRET_ACCESS_KEY", "t")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3")
    client.create_bucket(Bucket="data")
    yield client
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
