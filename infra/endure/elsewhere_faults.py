"""Faults of what a lake's parts elsewhere live on: Postgres for its catalog, S3 for its data."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import boto3
import psutil
from moto.server import ThreadedMotoServer

from infra.endure.bad_proxy import BadProxy
from infra.endure.fault_kinds import Victim
from tests.worlds.elsewhere import PostgresServer, free_port, postgres_server, write_yaml

Strike = Callable[[Victim], None]
World = Callable[[Path, random.Random], AbstractContextManager[tuple[str, Strike, dict[str, str]]]]
OUTAGE_SECONDS = 3.0


@contextmanager
def postgres_killed(place: Path, chance: random.Random) -> Iterator[tuple[str, Strike, dict[str, str]]]:
    """Kill every process of the Postgres server at a random moment, and start it again after some seconds."""
    with postgres_server() as server:
        lake = write_yaml(place / "lake", metadata=server.url, data_path="data")
        yield str(lake), lambda victim: _outage(victim, server), {}


def _outage(victim: Victim, server: PostgresServer) -> None:
    process = victim.start()
    victim.sleep()
    backends = psutil.Process(server.process.pid).children(recursive=True)
    server.process.kill()
    for each in backends:  # they end by themselves once they notice
        with suppress(psutil.NoSuchProcess):
            each.kill()
    server.process.wait()
    time.sleep(OUTAGE_SECONDS)
    server.start()
    process.wait(timeout=300)


def s3_faulty(trouble: str) -> World:
    """Return a world whose S3 server misbehaves for some seconds: ``503``, ``reset`` or ``slow``."""

    @contextmanager
    def world(place: Path, chance: random.Random) -> Iterator[tuple[str, Strike, dict[str, str]]]:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs every request
        server = ThreadedMotoServer("127.0.0.1", free_port())
        server.start()
        with BadProxy(*server.get_host_and_port()) as proxy:
            variables = {"AWS_ENDPOINT_URL": proxy.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                         "AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "us-east-1"}  # fmt: skip
            keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
            bucket = f"lake-{chance.randrange(10**9)}"
            boto3.client("s3", endpoint_url=proxy.url, **keys).create_bucket(Bucket=bucket)
            lake = write_yaml(place / "lake", metadata="catalog.sqlite", data_path=f"s3://{bucket}/lake")

            def strike(victim: Victim) -> None:
                process = victim.start()
                victim.sleep()
                proxy.trouble = trouble
                time.sleep(OUTAGE_SECONDS)
                proxy.trouble = ""
                process.wait(timeout=300)

            yield str(lake), strike, variables
        server.stop()

    return world


ELSEWHERE: dict[str, World] = {
    "kill -9 of Postgres": postgres_killed,
    **{f"S3: {name}": s3_faulty(name) for name in ("503", "reset", "slow")},
}
