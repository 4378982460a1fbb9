"""Secrets planted wherever a run may meet one appear in nothing that it prints, stores or serves."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lxml.html import tostring

from pairmill.flows.with_prefect.local_prefect import answers, free_port
from pairmill.flows.with_prefect.processes import start, stop, wait_for
from tests.worlds.browsed import browsed
from tests.worlds.elsewhere import write_yaml
from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.line import rows
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
from pairmill.flows.run.settings import Compute
from pairmill.flows.with_prefect import alerts
from pairmill.flows.with_prefect.deployments import curate

planted, lake, *assignments = sys.argv[1:]
Secret(value=planted).save("planted")
Webhook(url=f"http://me:{planted}@127.0.0.1:1/hook?token={planted}").save(alerts.BLOCK)
with get_client(sync_client=True) as client:
    assert alerts.install_alerts(client)
overrides = dict(each.split("=", 1) for each in assignments)
compute = Compute(workers=1, allow_addresses=["127.0.0.1/32"])
good = curate("demo", ["${LIST}"], lake, overrides=overrides, compute=compute, return_state=True)
bad = curate("demo", ["${GONE}"], lake, overrides=overrides, compute=compute, return_state=True)
assert good.is_completed() and bad.is_failed(), (good, bad)
"""
# Run each command, whatever became of the one before.
COMMANDS = """
import json, sys
from pairmill.flows.command.cli import main

for command in json.loads(sys.argv[1]):
    print("status", main(command), command[:2], flush=True)
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


def rows_that_leak(lake: Path) -> list[str]:
    """List the rows of all Parquet files that contain a planted secret: their bytes are compressed."""
    files = list(lake.rglob("*.parquet"))
    assert files
    return [f"{file}: {row}" for file in files for row in pq.read_table(file).to_pylist() if PLANTED in str(row)]


@pytest.fixture
def recipe(settings: dict[str, str]) -> dict[str, str]:
    return {**settings, "fetch.retries": "0", "images": "[]", "sentences": "[]", "balance.cap": "1000"}


@pytest.fixture
def variables(site: Web) -> dict[str, str]:
    """The environment of all runs: its variables LIST and GONE are signed addresses, of a list and of nothing."""
    owned = site.url("/").replace("//", f"//me:{PLANTED}page@", 1)
    urls = "".join(f"{owned}{n}.jpg,A picture of noise with the number {n}.\n" for n in range(6))
    site.manners["/list.csv"] = picture(f"url,caption\n{urls}".encode())
    return ENVIRONMENT | {"LIST": signed(site, "/list.csv"), "GONE": signed(site, "/gone.csv")}


@pytest.mark.slow  # 15 commands, each of which names an address in its error
@pytest.mark.timeout(1200)
def test_no_command_prints_or_stores_a_planted_secret_however_it_fails(
    site: Web, variables: dict[str, str], recipe: dict[str, str], tmp_path: Path
):
    log, lake = tmp_path / "log", tmp_path / "lake"
    postgres = write_yaml(tmp_path / "team", metadata="postgresql://me@127.0.0.1:1/lake", data_path="data")
    with_password = write_yaml(tmp_path / "own", metadata=f"postgresql://me:{PLANTED}@127.0.0.1:1/x", data_path="data")
    on_s3 = write_yaml(tmp_path / "s3", metadata="catalog.sqlite", data_path="s3://bucket/lake")
    run_demo, here = ("run", "demo", "--source"), ("--lake", str(lake))
    failing = [
        *((*run_demo, uri, *here) for uri in (
            variables["GONE"],
            variables["LIST"].replace(site.url(""), "http://127.0.0.1:1"),
            f"http://me:{PLANTED}@127.0.0.1:1/list.csv",
            f"postgresql://me:{PLANTED}@127.0.0.1:1/list",
            f"s3://me:{PLANTED}@bucket/pages",
            "s3://bucket/pages",
            "${NOTHING}",
        )),
        *((*command, "--lake", str(each)) for each in (postgres, with_password, on_s3)
          for command in ((*run_demo, "${LIST}"), ("status",))),
        (*run_demo, "${LIST}", *here, "--set", "models.captioner=hf:nobody/nothing"),
    ]  # fmt: skip
    reading = [(*command, *here) for command in (("status",), ("doctor", "demo"), ("quarantine",),
               ("sql", "SELECT * FROM runs"), ("sql", "SELECT * FROM run_recipes"))]  # fmt: skip
    sets = [f"--set={key}={value}" for key, value in recipe.items()]
    good = ("run", "demo", "--source", variables["LIST"], *here, "--allow-address=127.0.0.1/32", *sets)
    assert run(log, variables, "-c", COMMANDS, json.dumps([good, *failing, *reading])) == 0
    text = log.read_text()
    statuses = re.findall(r"^status (\d)", text, re.MULTILINE)
    assert statuses[: 1 + len(failing)] == ["0", *["1"] * len(failing)], text
    assert "list.csv" in text and "gone.csv" in text and "127.0.0.1:1" in text
    found = [*leaks(log, lake), *rows_that_leak(lake)]
    assert not found, "\n".join(found)


@pytest.mark.slow  # 60 s: a Prefect server of its own, whose database is read whole
@pytest.mark.timeout(1200)
def test_prefect_lake_report_and_pages_hold_no_planted_secret(
    variables: dict[str, str], recipe: dict[str, str], tmp_path: Path
):
    log, lake, home = tmp_path / "log", tmp_path / "lake", tmp_path / "prefect"
    port = free_port(0)
    prefect = {"PREFECT_API_URL": f"http://127.0.0.1:{port}/api", "PREFECT_HOME": str(home),
               "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}  # fmt: skip
    command = ["prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    server = start("prefect server", command, prefect, home, tmp_path)
    try:
        wait_for(server, lambda: answers(prefect["PREFECT_API_URL"]), 300)
        assignments = [f"{key}={value}" for key, value in (recipe | PICTURES_ALONE | {"images": "[]"}).items()]
        status = run(log, variables | prefect, "-c", PREFECT_RUNS, PLANTED, str(lake), *assignments)
        assert status == 0, log.read_text()[-3000:]
    finally:
        stop(server)
    [(picture_id,)] = rows(lake, "SELECT min(image_id) FROM images")
    with browsed(lake) as pages:
        shown = [
            tostring(pages.gallery(f"/{each}"), encoding="unicode")
            for each in ("gallery?dataset=demo@1", "rules", f"item/{picture_id}")
        ]
    (tmp_path / "pages").write_text("".join(map(str, shown)))
    database = b"".join(file.read_bytes() for file in home.glob("prefect.db*"))
    assert b"gone.csv" in database and b"${GONE}" in database
    assert list(lake.glob("reports/*")) and "gone.csv" in log.read_text()
    found = [*leaks(log, lake, home, tmp_path / "pages"), *rows_that_leak(lake)]
    assert not found, "\n".join(found)
