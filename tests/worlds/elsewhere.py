"""Servers of our own for lakes elsewhere: Postgres and an S3 server, as fixtures; and what is written there."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write.commit import Manifest


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    server = ThreadedMotoServer("127.0.0.1", free_port())
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("ENDPOINT_URL", f"http://{host}:{port}"),
        ("ACCESS_KEY_ID", "key"),
        ("SECRET_ACCESS_KEY", "it's"),
        ("REGION", "us-east-1"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem(endpoint_url=f"http://{host}:{port}")
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()  # moto's buckets outlive a server
    files.mkdir("bucket")
    yield files
    server.stop()


def write_yaml(folder: Path, **settings: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "lake.yaml").write_text("".join(f"{key}: {value}\n" for key, value in settings.items()))
    return folder / "lake.yaml"


def remote_partition(lake: Lake, files: s3fs.S3FileSystem, name: str) -> Manifest:
    path = f"{lake.staging('image_hash', 'run')}/{name}.parquet"
    columns = {"sha256": [name], "shard": [name], "scorer": ["k"], "commit": pa.array([1], pa.int64())}
    columns |= {"phash": pa.array([1], pa.uint64()), "flat_colours": pa.nulls(1, pa.string())}
    with files.open(path, "wb") as file:
        pq.write_table(pa.table(columns), file)
    return Manifest("image_hash", name, name, "k", 1, 100, 0.1, path, 1, "run")


class PostgresServer:
    """A server of our own below ``folder``, which can be killed and started again; it refuses to run as root."""

    def __init__(self, folder: Path) -> None:
        self._user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
        if not shutil.which("initdb") or (self._user and not shutil.which("setpriv")):
            pytest.skip("no Postgres server here")
        self._data, self._port = folder / "data", free_port()
        self._data.mkdir()
        if self._user:
            shutil.chown(self._data, "postgres", "postgres")
            folder.chmod(0o755)
        command = [*self._user, "initdb", "-D", str(self._data), "-U", "me", "-A", "trust", "-N"]
        if subprocess.run(command, capture_output=True).returncode:
            pytest.skip("Postgres does not initialise here")
        self.url = f"postgresql://me@127.0.0.1:{self._port}/postgres"
        self.process = self.start()

    def start(self) -> subprocess.Popen[bytes]:
        """Start the server and wait until it answers."""
        data = str(self._data)
        command = [*self._user, "postgres", "-D", data, "-p", str(self._port), "-h", "127.0.0.1", "-k", data, "-F"]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until_it_answers(self.url)
        return self.process

    def stop(self) -> None:
        """Stop the server."""
        self.process.terminate()
        self.process.wait(timeout=60)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a Postgres server in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        server = PostgresServer(Path(folder))
        try:
            yield server
        finally:
            server.stop()


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of a Postgres server of our own."""
    with postgres_server() as server:
        yield server.url


def wait_until_it_answers(url: str) -> None:
    connection = connect("postgres_scanner")
    for _ in range(300):
        try:
            connection.execute(f"ATTACH '{url}' AS probe (TYPE postgres)")
            return
        except Exception:
            time.sleep(0.1)
    pytest.fail("Postgres does not answer")
