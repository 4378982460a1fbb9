"""Secrets planted wherever a run may meet one appear in nothing that it prints, stores or serves."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from pairmill.flows.with_prefect.local_prefect import answers, free_port
from pairmill.flows.with_prefect.processes import start, stop, wait_for
from tests.worlds.browsed import served
from tests.worlds.elsewhere import write_yaml
from tests.worlds.web import Web, photograph, picture, status, web

PLANTED = "pl4nted"
NOWHERE = f"me:{PLANTED}endpoint@127.0.0.1:1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": f"{PLANTED}id",
    "AWS_SECRET_ACCESS_KEY": f"{PLANTED}key",
    "AWS_SESSION_TOKEN": f"{PLANTED}session",
    "AWS_ENDPOINT_URL": f"http://{NOWHERE}",
    "AWS_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
    "HF_TOKEN": f"hf_{PLANTED}",
    "HF_ENDPOINT": f"http://{NOWHERE}",
    "PGPASSWORD": f"{PLANTED}pg",
    "CHAT_KEY": f"{PLANTED}chat",
}
PREFECT_RUNS = """
import sys
from prefect.blocks.system import Secret
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client
from pairmill.flows.settings import Compute
from pairmill.flows.with_prefect import alerts
from pairmill.flows.with_prefect.deployments import curate

planted, lake, *assignments = sys.argv[1:]
Secret(value=planted).save("planted")
Webhook(url=f"http://me:{planted}@127.0.0.1:1/hook?token={planted}").save(alerts.BLOCK)
with get_client(sync_client=True) as client:
    assert alerts.install(client)
overrides = dict(each.split("=", 1) for each in assignments)
compute = Compute(workers=1, allow_addresses=["127.0.0.1/32"])
good = curate("demo", ["${LIST}"], lake, overrides=overrides, compute=compute, return_state=True)
bad = curate("demo", ["${GONE}"], lake, overrides=overrides, compute=compute, return_state=True)
assert good.is_completed() and bad.is_failed(), (good, bad)
"""


@pytest.fixture
def site() -> Iterator[Web]:
    with web() as running:
        for n in range(6):
            running.manners[f"/{n}.jpg"] = picture(photograph(n, 160))
        running.manners["/5.jpg"] = status(404)
        yield running


def signed(server: Web, path: str) -> str:
    """Return an address whose query signs it."""
    return f"{server.url(path)}?token={PLANTED}token&x-amz-signature={PLANTED}signature"


def leaks(*places: Path) -> list[str]:
    """List the files at or below ``places`` that contain a planted secret, with what stands around it."""
    files = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
    found = ((file, file.read_bytes()) for file in files)
    return [
        f"{file}: {text[max(0, (at := text.index(PLANTED.encode())) - 200) : at + 60]!r}"
        for file, text in found
        if PLANTED.encode() in text
    ]


def run(log: Path, variables: dict[str, str], *command: str) -> int:
    """Run a module of Python with all output in ``log``; return its exit status."""
    with open(log, "ab") as output:
        return subprocess.run(
            [sys.executable, *command], env={**os.environ, **variables}, stdout=output, stderr=output, timeout=600
        ).returncode


@pytest.mark.slow  # 60 s: a Prefect server of its own, whose database is read whole
def test_no_planted_secret_is_printed_stored_or_served(site: Web, settings: dict[str, str], tmp_path: Path):
    logs, lake, home = tmp_path / "logs", tmp_path / "lake", tmp_path / "prefect"
    logs.mkdir()
    owned = site.url("/").replace("//", f"//me:{PLANTED}page@", 1)
    urls = "".join(f"{owned}{n}.jpg,A picture of noise with the number {n}.\n" for n in range(6))
    site.manners["/list.csv"] = picture(f"url,caption\n{urls}".encode())
    recipe = {**settings, "fetch.retries": "0", "images": "[]", "sentences": "[]", "balance.cap": "1000"}
    variables = ENVIRONMENT | {"LIST": signed(site, "/list.csv"), "GONE": signed(site, "/gone.csv")}

    port = free_port(0)
    prefect = {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_HOME": str(home),
               "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}  # fmt: skip
    command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    server = start("prefect server", command, prefect, home, tmp_path)
    try:
        wait_for(server, lambda: answers(prefect["PREFECT_API_URL"]), 300)
        assignments = [f"{key}={value}" for key, value in recipe.items()]
        status = run(logs / "prefect", variables | prefect, "-c", PREFECT_RUNS, PLANTED, str(lake), *assignments)
        assert status == 0, (logs / "prefect").read_text()[-3000:]
    finally:
        stop(server)

    postgres = write_yaml(tmp_path / "team", metadata="postgresql://me@127.0.0.1:1/lake", data_path="data")
    with_password = write_yaml(
        tmp_path / "own", metadata=f"postgresql://me:{PLANTED}@127.0.0.1:1/lake", data_path="data"
    )
    on_s3 = write_yaml(tmp_path / "s3", metadata="catalog.sqlite", data_path="s3://bucket/lake")
    failing = [
        ("run", "demo", "--source", variables["GONE"]),
        ("run", "demo", "--source", variables["LIST"].replace(site.url(""), "http://127.0.0.1:1")),
        ("run", "demo", "--source", f"http://me:{PLANTED}@127.0.0.1:1/list.csv"),
        ("run", "demo", "--source", "s3://bucket/pages"),
        ("run", "demo", "--source", f"s3://{PLANTED}:{PLANTED}@bucket/pages"),
        ("run", "demo", "--source", "${LIST}x"),
        *(("run", "demo", "--source", "${LIST}", "--lake", str(each)) for each in (postgres, with_password, on_s3)),
        *(("status", "--lake", str(each)) for each in (postgres, with_password, on_s3)),
        ("run", "demo", "--source", "${LIST}", "--set", "models.captioner=hf:nobody/nothing"),
        ("run", "demo", "--source", "${LIST}", "--set", f"models.captioner=http://{NOWHERE}/v1#m"),
        ("up", "--once", "curate/demo", "--source", variables["LIST"]),
    ]
    for n, arguments in enumerate(failing):
        where = () if "--lake" in arguments else ("--lake", str(lake))
        status = run(logs / f"failing-{n}", variables, "-m", "pairmill.flows.command.cli", *arguments, *where)
        assert status == 1, arguments
    reading = [("status",), ("doctor", "demo"), ("quarantine",), ("datasets",), ("report", "demo@1"),
               ("sql", "SELECT * FROM runs"), ("sql", "SELECT * FROM run_recipes")]  # fmt: skip
    for n, arguments in enumerate(reading):
        run(logs / f"reading-{n}", variables, "-m", "pairmill.flows.command.cli", *arguments, "--lake", str(lake))
    with served(lake) as address:
        for path in ("", "report?dataset=demo@1", "gallery?dataset=demo@1"):
            (logs / f"page-{path[:6]}").write_bytes(urlopen(address.replace("?", f"{path.partition('?')[0]}?")).read())
    texts = "".join(file.read_text() for file in logs.iterdir())
    assert "list.csv" in texts and "gone.csv" in texts and "127.0.0.1:1" in texts
    found = leaks(logs, lake, home)
    assert not found, "\n".join(found)
