"""Fixtures: a moto S3 server in this process and an empty bucket; and an upload of files."""

from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from pairmill.ops.read.places import s3


@pytest.fixture(scope="module")
def server():
    """Start a moto server; yield its address."""
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(server, monkeypatch):
    """Point the AWS variables at the server, create the bucket `corpus`, and yield a boto3 client."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fresh_filesystem()
    client = boto3.client("s3")
    client.create_bucket(Bucket="corpus")
    yield client
    while items := client.list_objects_v2(Bucket="corpus").get("Contents", []):
        client.delete_objects(Bucket="corpus", Delete={"Objects": [{"Key": item["Key"]} for item in items]})
    client.delete_bucket(Bucket="corpus")
    fresh_filesystem()


def fresh_filesystem():
    """Drop cached filesystems, so that the next one reads the test's environment."""
    import s3fs

    s3.filesystem.cache_clear()
    s3fs.S3FileSystem.clear_instance_cache()


def upload(client, folder: Path, prefix: str, bucket: str = "corpus"):
    """Upload the files of a folder under ``prefix``."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            client.put_object(Bucket=bucket, Key=prefix + path.relative_to(folder).as_posix(), Body=path.read_bytes())
