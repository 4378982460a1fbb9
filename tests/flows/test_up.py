"""Prefect for real: `pairmill up` with its own server, which serves the deployments."""

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.request import urlopen

import pytest
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.actions import DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.schedules import IntervalSchedule
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, PREFECT_SERVER_API_PORT, temporary_settings

import pairmill as pm
from pairmill.flows.command.cli import main
from pairmill.flows.run.settings import ROOT
from pairmill.flows.with_prefect.local_prefect import free_port
from tests.worlds.prefect_up import COMMAND, asked, environment, of, settled, staying

pytestmark = pytest.mark.timeout(900)
RUNS = (ROOT / "infra/docs/runs.md").read_text()
# A worker takes one run of a deployment in a pool: maintenance, which a lake that is not there yet has skipped.
POOLED = """set -e
prefect work-pool create curate-pool --type process
prefect --no-prompt deploy --all
prefect deployment run maintain/nightly --param lake=nowhere
prefect worker start --pool curate-pool --run-once
prefect flow-run ls --state Skipped | grep maintain"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


def watched(
    home: Path, api: str, lake: Path, source: str, settings: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a deployment as a person would in another terminal, and wait for its end."""
    given = {"sources": [source], "lake": str(lake), "overrides": settings}
    command = ["prefect", "deployment", "run", "curate/demo", "--params", json.dumps(given), "--watch"]
    return in_terminal(home, ROOT, f"PREFECT_API_URL={api} {shlex.join(command)}")


@pytest.mark.slow
def test_a_deployment_runs_at_the_server_and_nothing_is_left_running(
    home: Path, tmp_path: Path, more_pages: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PAGES", str(more_pages))
    lake = tmp_path / "lake"
    with a_taken_port(4200), staying(home, lake) as (_, api):  # Prefect's own
        assert api != "http://127.0.0.1:4200/api"
        done = watched(home, api, lake, "${PAGES}", settings)
        assert done.returncode == 0, done.stdout + done.stderr
    assert of(home) == []
    assert [each.dataset for each in pm.open(lake).versions()] == ["demo@1"]
    assert asked(home, "SELECT state_type FROM flow_run WHERE parameters LIKE '%PAGES%'") == [("COMPLETED",)]
    kinds = dict(asked(home, "SELECT type, count(*) FROM artifact GROUP BY type"))
    assert kinds["progress"] >= 10 and kinds["table"] >= 2 and kinds["markdown"] == 1
    tasks = {name for (name,) in asked(home, "SELECT DISTINCT substr(name, 1, instr(name, '-') - 1) FROM task_run")}
    assert tasks >= {"ingest", "score_images", "cluster", "associate", "caption", "publish"}
    assert asked(home, "SELECT count(*) FROM automation WHERE enabled") == [(1,)]


@contextmanager
def a_taken_port(port: int) -> Iterator[None]:
    """Hold a port of this machine, unless another program does."""
    with ExitStack() as held:
        with suppress(OSError):
            held.enter_context(socket.create_server(("127.0.0.1", port)))
        yield


@pytest.mark.full  # 50 s: three servers. One beside a program that has Prefect's port is started above
def test_two_that_start_at_once_have_a_server_each(tmp_path: Path):
    homes = [tmp_path / "one", tmp_path / "other"]

    def address(home: Path) -> str:
        with staying(home, home / "lake") as (_, api):
            both_are_up.wait(300)
            with urlopen(f"{api}/admin/settings", timeout=30) as answer:
                assert json.load(answer)["home"] == str(home)
        return api

    both_are_up = threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(address, homes)
    assert first != second and of(homes[0]) == of(homes[1]) == []


@pytest.mark.slow
def test_up_stays_and_serves_others_until_it_is_told_to_stop_and_stops_what_it_started_alone(
    home: Path, tmp_path: Path, settings: dict[str, str]
):
    port = free_port(0)
    with staying(home, tmp_path / "lake", port=port) as (server, api):
        assert api == f"http://127.0.0.1:{port}/api"
        mine = of(home)
        another_terminal_reaches_the_server(home, tmp_path, api)
        assert len(mine) >= 3
        what_the_user_must_mend_fails_the_run_with_that_message(home, tmp_path, settings, api)
        assert settled(home, set(mine))
        with staying(home, tmp_path / "other", api) as (worker, same):
            assert same == api and len(of(home)) > len(mine)
            worker.send_signal(signal.SIGINT)
            assert worker.wait(120) == 0
        assert settled(home, set(mine)) and server.poll() is None
        what_a_user_set_is_kept_and_a_work_pool_is_refused(home, tmp_path, api)
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
    assert of(home) == []


def another_terminal_reaches_the_server(home: Path, folder: Path, api: str) -> None:
    """Prefect's commands need the line that `up` prints, as infra/docs/runs.md shows them."""
    (export,) = re.findall(r"^export PREFECT_API_URL=.*$", RUNS, re.MULTILINE)
    (run,) = re.findall(r"^prefect deployment run curate/30m .*$", RUNS, re.MULTILINE)
    (schedule,) = re.findall(r"^prefect deployment schedule create .*$", RUNS, re.MULTILINE)
    here = run.replace("s3://bucket/pages", str(folder / "nowhere")).removesuffix(" --watch")
    told = in_terminal(home, folder, f"{export.partition('=')[0]}={api}\n{here}\n{schedule} --accept-yes")
    assert told.returncode == 0 and "UUID" in told.stdout, told.stdout + told.stderr
    assert asked(home, "SELECT parameters FROM flow_run WHERE parameters LIKE '%nowhere%'")
    with SyncPrefectClient(api) as client, temporary_settings({PREFECT_API_URL: api, PREFECT_HOME: home}):
        found = client.read_deployment_by_name("curate/30m")
        client.create_deployment_schedules(found.id, [(IntervalSchedule(interval=3600), False)])  # pyright: ignore
        client.update_deployment(found.id, DeploymentUpdate(parameters={"recipe": "30m", "lake": "own"}))
        schedules = client.read_deployment_by_name("maintain/nightly").schedules
        (nightly,) = [each for each in schedules if each.parameters == {"lake": str(folder / "lake")}]
        assert nightly.active
        client.update_deployment_schedule(nightly.deployment_id, nightly.id, active=False)


def what_a_user_set_is_kept_and_a_work_pool_is_refused(home: Path, folder: Path, api: str) -> None:
    """A second `pairmill up` has served the same deployments since."""
    kept = asked(home, "SELECT active FROM deployment_schedule")
    assert kept.count((0,)) == 2 and len(kept) == 5  # three lakes are maintained
    assert asked(home, "SELECT parameters FROM deployment WHERE parameters LIKE '%own%'")
    with SyncPrefectClient(api) as client:
        client.create_work_pool(WorkPoolCreate(name="curate-pool", type="process"))
        found = client.read_deployment_by_name("curate/demo")
        client.update_deployment(found.id, DeploymentUpdate(work_pool_name="curate-pool"))
    is_refused_for_a_work_pool(home, folder, api)


def is_refused_for_a_work_pool(home: Path, folder: Path, api: str) -> None:
    refused = in_terminal(home, folder, f"PREFECT_API_URL={api} pairmill up --lake other")
    assert refused.returncode == 1 and refused.stderr.count("\n") == 1
    assert "has 'curate/demo' in the work pool 'curate-pool'" in refused.stderr


@pytest.mark.full  # 60 s: two servers in turn, and five commands of Prefect
def test_what_a_user_set_outlives_the_server_and_a_work_pool_that_runs_is_not_taken_over(tmp_path: Path):
    home = tmp_path / "prefect"
    kept = "SELECT id, active, parameters FROM deployment_schedule ORDER BY id"
    with staying(home, tmp_path / "lake") as (_, api), SyncPrefectClient(api) as client:
        (nightly,) = client.read_deployment_by_name("maintain/nightly").schedules
        client.update_deployment_schedule(nightly.deployment_id, nightly.id, active=False)
    before = asked(home, kept)
    assert [active for _, active, _ in before].count(0) == 1
    with staying(home, tmp_path / "lake") as (_, api):
        assert asked(home, kept) == before
        done = in_terminal(home, ROOT, f"export PREFECT_API_URL={api}\n{POOLED}")
        assert done.returncode == 0, done.stdout + done.stderr
        assert asked(home, kept) == before
        is_refused_for_a_work_pool(home, tmp_path, api)


def in_terminal(home: Path, folder: Path, lines: str) -> subprocess.CompletedProcess[str]:
    """Run lines of a shell as a person would in another terminal."""
    own = environment(home)
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    return subprocess.run(lines, shell=True, cwd=folder, env=own | {"PATH": path}, capture_output=True, text=True,
                          timeout=300)  # fmt: skip


def what_the_user_must_mend_fails_the_run_with_that_message(
    home: Path, tmp_path: Path, settings: dict[str, str], api: str
) -> None:
    done = watched(home, api, tmp_path / "lake", str(tmp_path / "nowhere"), settings)
    assert done.returncode == 1
    assert "Failed" in done.stdout and "Traceback" not in done.stdout
    told = [message for (message,) in asked(home, "SELECT message FROM flow_run_state WHERE name = 'Failed'")]
    assert any("there is no such file or folder" in each for each in told)
    assert asked(home, "SELECT count(*) FROM task_run WHERE state_type = 'FAILED'") == [(0,)]


@pytest.mark.slow
def test_a_configured_server_that_does_not_answer_is_told_at_once(home: Path, tmp_path: Path):
    lost = environment(home) | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run([*COMMAND, "--lake", str(tmp_path)], env=lost, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "server at http://127.0.0.1:9/api does not answer" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("by_option", [True, False])
def test_a_chosen_port_that_is_taken_is_told_and_no_other_is_used(
    by_option: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("pairmill.flows.with_prefect.local_prefect.ENVIRONMENT", {})
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        mine = {PREFECT_HOME: tmp_path} | ({} if by_option else {PREFECT_SERVER_API_PORT: port})
        with temporary_settings(mine, restore_defaults={PREFECT_API_URL}):
            assert main(["up", "--lake", str(tmp_path), *(["--port", str(port)] if by_option else [])]) == 1
    assert capsys.readouterr().err == f"pairmill: port {port} of 127.0.0.1 is taken; give another by --port.\n"
