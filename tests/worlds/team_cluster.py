"""A team's cluster as processes of this machine: the parts of infra/compose, each with a folder of its own.

Postgres holds the lake's catalog and Prefect's database, moto's S3 server the sources and the lake's data. Ray has a
head without CPUs, where Prefect's worker starts runs, and nodes that join and leave. A node shares no folder with
another. A token lets them in.
"""

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import asyncpg
import psutil

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.with_prefect.local_prefect import answers
from pairmill.flows.with_prefect.processes import Child, start, wait_for
from tests.worlds.elsewhere import free_port

RAY = ("ray.scripts.scripts", "start", "--block", "--disable-usage-stats")
UP_SECONDS, ATTEMPTS = 240.0, 3


@dataclass
class RayNodes:
    """The nodes of a Ray cluster, by name. ``address`` is the head's, ``token`` lets machines and programs in."""

    folder: Path
    address: str
    token: dict[str, str]
    nodes: dict[str, Child]

    def add(self, name: str, cpus: int, **more: str) -> None:
        """Start a node and wait until it has joined; ``more`` are variables of its environment.

        Ray gives a node 30 s to start, which are too few on a busy machine: it has ATTEMPTS.
        """
        for attempt in range(ATTEMPTS):
            child = self._start(name, self.folder / f"{name}{attempt or ''}", cpus, more)
            try:
                return wait_for(child, partial(_has_started, child), UP_SECONDS)
            except PairmillError:
                self.kill(name)
                if attempt + 1 == ATTEMPTS:
                    raise

    def _start(self, name: str, own: Path, cpus: int, more: dict[str, str]) -> Child:
        """Start a node whose home and files are in the folder ``own``."""
        begun = ["--head", "--include-dashboard=false", "--port", self.address.partition(":")[2]]
        joining = ["--address", self.address] if self.nodes else begun
        own.mkdir()
        command = [*RAY, *joining, "--num-cpus", str(cpus), "--temp-dir", str(own / "ray"),
                   "--object-store-memory", str(200_000_000)]  # fmt: skip
        environment = {"HOME": str(own), "RAY_ADDRESS": "", **self.token, **more}
        self.nodes[name] = child = start(f"ray {name}", command, environment, own, own)
        return child

    def kill(self, name: str) -> None:
        """End a node and all its processes at once, as a lost machine does."""
        child = self.nodes.pop(name)
        if child.process.poll() is None:
            family = psutil.Process(child.process.pid).children(recursive=True)
            child.process.kill()
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(family, timeout=60)
        child.process.wait(60)


def _has_started(child: Child) -> bool:
    """Return whether Ray says that a node has joined."""
    return "Ray runtime started" in child.log.read_text(errors="replace")


@contextmanager
def ray_nodes() -> Iterator[RayNodes]:
    """Start a head without CPUs; stop all nodes at the end.

    The nodes' folders have short names, because the path of a socket is at most 107 bytes.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        found = RayNodes(Path(folder), f"127.0.0.1:{free_port()}", token, {})
        try:
            found.add("head", 0)
            yield found
        finally:
            for name in reversed(list(found.nodes)):
                found.kill(name)


@contextmanager
def prefect_on_postgres(folder: Path, postgres: str, lake: Path, ray: RayNodes) -> Iterator[dict[str, str]]:
    """Run Prefect's server on a database of its own, and `pairmill up` with its worker; yield its environment."""
    asyncio.run(_create_database(postgres, "prefect"))
    port = free_port()
    api = f"http://127.0.0.1:{port}/api"
    kept = {name: "" for name in os.environ if name.startswith("PREFECT_")}
    own = {
        **kept,
        "PREFECT_HOME": str(folder),
        "PREFECT_API_URL": api,
        "PREFECT_API_DATABASE_CONNECTION_URL": postgres.replace("postgresql://", "postgresql+asyncpg://").replace(
            "/postgres", "/prefect"
        ),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "RAY_ADDRESS": ray.address,
        **ray.token,
    }
    with ExitStack() as stack:
        command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
        server = start("prefect server", command, own, folder, folder)
        stack.callback(_stop, server)
        wait_for(server, lambda: answers(api), UP_SECONDS)
        up = start("up", ["pairmill.flows.command.cli", "up", "--lake", str(lake)], own, folder, folder)
        stack.callback(_stop, up)
        wait_for(up, lambda: "Ctrl-C stops it" in up.log.read_text(errors="replace"), UP_SECONDS)
        yield own


async def _create_database(postgres: str, name: str) -> None:
    connection = await asyncpg.connect(postgres)
    try:
        await connection.execute(f"CREATE DATABASE {name}")
    finally:
        await connection.close()


def _stop(child: Child) -> None:
    """Terminate a process, and kill those of its descendants that still run after 30 s."""
    family = psutil.Process(child.process.pid).children(recursive=True) if child.process.poll() is None else []
    child.process.send_signal(signal.SIGTERM)
    child.process.wait(60)
    for each in psutil.wait_procs(family, timeout=30)[1]:
        each.kill()
