"""Prefect for real: `pairmill up` with its own server, pool, deployments and worker."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

pytestmark = pytest.mark.timeout(900)
COMMAND = [sys.executable, "-m", "flows.command.cli", "up"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("prefect")


def environment(home: Path, api: str = "") -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return kept | {"PREFECT_HOME": str(home)} | ({"PREFECT_API_URL": api} if api else {})


def once(
    home: Path, lake: Path, source: Path, settings: dict[str, str], api: str = ""
) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "--once", "curate/demo", "--lake", str(lake), "--source", str(source)]
    command += [f"--set={key}={value}" for key, value in settings.items()]
    return subprocess.run(command, env=environment(home, api), capture_output=True, text=True, timeout=600)


@contextmanager
def staying(home: Path, lake: Path, api: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`up` that stays, once it is up, and the address of the server that it started or was given."""
    # Where the tests run in the background of a script, SIGINT is ignored by all that they start.
    child = subprocess.Popen([*COMMAND, "--lake", str(lake)], env=environment(home, api), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))  # fmt: skip
    try:
        assert child.stdout is not None
        deadline, told = time.monotonic() + 300, ""
        while "Ctrl-C stops it" not in (line := child.stdout.readline()):
            told += line
            assert line and time.monotonic() < deadline, told + (child.communicate(timeout=120)[1] if not line else "")
        yield child, told.partition("PREFECT_API_URL=")[2].split()[0]
    finally:
        child.terminate()
        child.wait(120)


def asked(home: Path, sql: str) -> list[tuple]:
    with sqlite3.connect(home / "prefect.db") as database:
        return database.execute(sql).fetchall()


def of(home: Path) -> list[int]:
    """Processes that still work with this Prefect home."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT_HOME") == str(home):
                found.append(process.pid)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found


def settled(home: Path, wanted: set[int]) -> bool:
    """Whether just these work with this home: the worker that stays may have taken the run, whose process then ends."""
    deadline = time.monotonic() + 60
    while set(of(home)) != wanted and time.monotonic() < deadline:
        time.sleep(0.5)
    return set(of(home)) == wanted


@pytest.mark.slow
def test_once_goes_through_server_and_worker_tells_the_result_and_leaves_nothing_running(
    home: Path, tmp_path: Path, few_pages: Path, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PAGES", str(few_pages))
    done = once(home, tmp_path / "lake", Path("${PAGES}"), settings)
    assert done.returncode == 0, done.stdout + done.stderr
    for part in ("deployed curate/demo, curate/15m, curate/30m, curate/100m, recaption/all", "demo@1", "(published)",
                 "short_side", "pairmill sql", "Prefect's interface  http://127.0.0.1:", "publish: "):  # fmt: skip
        assert part in done.stdout
    assert done.stdout.count("  text1 ") == 3
    report = next(line for line in done.stdout.splitlines() if line.startswith("report")).split()[1]
    assert Path(report).is_file()
    assert of(home) == []
    assert asked(home, "SELECT state_type FROM flow_run") == [("COMPLETED",)]
    [(stored,)] = asked(home, "SELECT parameters FROM flow_run")
    assert json.loads(stored)["sources"] == ["${PAGES}"]
    kinds = dict(asked(home, "SELECT type, count(*) FROM artifact GROUP BY type"))
    assert kinds["progress"] >= 10 and kinds["table"] == 1 and kinds["markdown"] == 2
    tasks = {name for (name,) in asked(home, "SELECT DISTINCT substr(name, 1, instr(name, '-') - 1) FROM task_run")}
    assert tasks >= {"ingest", "score_images", "cluster", "associate", "caption", "publish"}
    assert asked(home, "SELECT count(*) FROM automation WHERE enabled") == [(1,)]
    assert set(asked(home, "SELECT active FROM deployment_schedule")) == {(0,)}


@pytest.mark.slow
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
    with staying(home, tmp_path / "lake") as (server, api):
        mine = of(home)
        assert len(mine) >= 3
        what_the_user_must_mend_fails_the_run_with_that_message(home, tmp_path, settings, api)
        with staying(home, tmp_path / "other", api) as (worker, same):
            assert same == api and len(of(home)) > len(mine)
            worker.send_signal(signal.SIGINT)
            assert worker.wait(120) == 0
        assert settled(home, set(mine)) and server.poll() is None
        server.send_signal(signal.SIGTERM)
        assert server.wait(120) == 0
    assert of(home) == []


def what_the_user_must_mend_fails_the_run_with_that_message(
    home: Path, tmp_path: Path, settings: dict[str, str], api: str
) -> None:
    before = set(of(home))
    done = once(home, tmp_path / "lake", tmp_path / "nowhere", settings, api)
    assert done.returncode == 1
    assert "curate/demo ended as Failed: source" in done.stderr and "there is no such file or folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert "deployed" not in done.stdout  # they were up to date
    assert asked(home, "SELECT count(*) FROM task_run WHERE state_type = 'FAILED'") == [(0,)]
    assert settled(home, before)


def test_a_configured_server_that_does_not_answer_is_told_at_once(home: Path, tmp_path: Path):
    lost = environment(home) | {"PREFECT_API_URL": "http://127.0.0.1:9/api"}
    done = subprocess.run([*COMMAND, "--lake", str(tmp_path)], env=lost, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "server at http://127.0.0.1:9/api does not answer" in done.stderr
