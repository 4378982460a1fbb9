"""A stage that waits for a machine says so: once in the log, and to who looks at the lake or watches the run."""

import json
import logging
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from pairmill.flows.command.cli import main
from pairmill.tasks.run.cluster.ray_nodes import ResourceWait, start_ray
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import Resources
from tests.worlds.growing_cluster import growing_cluster
from tests.worlds.shared import made_once, new_lake, opened_new

PROGRAM = "import sys; from tests.worlds.waiting_run import main; main(*sys.argv[1:])"
JOIN = """
import os, ray
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.run.cluster.ray_nodes import start_ray
from pairmill.tasks.run.place.placement import Placement
ray.__version__ = os.environ.get("OTHER_RAY", ray.__version__)
try:
    start_ray(Placement(ray_address="auto"))
except PairmillError as error:
    print(error)
"""
WAITS = r"waiting for a node with 2 CPUs and 1 GPU since \d\d:\d\d UTC \(1 being launched\)"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", r"nothing answers there .* Give the address"),
        (
            "no-port",
            r"nothing answers there as a Ray cluster does \(Invalid address format: no-port\). Give the address",
        ),
        ("ray://127.0.0.1:9", "a run cannot use Ray's client .* HOST:6379"),
    ],
)
def test_a_cluster_that_does_not_answer_is_told_at_once(address: str, said: str):
    with pytest.raises(PairmillError, match=f"--ray {address}: {said}"):
        start_ray(Placement(ray_address=address))


def test_a_wait_is_logged_when_it_begins_and_ends_and_shown_whenever_it_changes(caplog: pytest.LogCaptureFixture):
    shown: list[str] = []
    waiting = ResourceWait(Resources(1.0, 0.0, 1, 1), 0.0, shown.append)
    with caplog.at_level(logging.INFO, "pairmill.workers"):
        waiting.end()
        assert shown == [] and caplog.messages == []
        for launching in (0, 0, 2, 2, 2):
            waiting.go_on(launching)
        waiting.end()
        waiting.end()
    first, second, last = shown
    assert re.fullmatch(r"waiting for a node with 1 CPU since \d\d:\d\d UTC \(none being launched\)", first)
    assert second == first.replace("none", "2") and last == ""
    assert caplog.messages == [first, "waited 0 s for a node"]


def test_status_has_a_line_of_what_the_holder_waits_for_unless_that_was_killed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "curate demo") as writer:
        found = []
        for text, killed in (("captions: waiting for a node", ""), ("", ""), ("waiting for a node", "pid = 0, ")):
            writer.show_waiting(text)
            lake.metadata.write(f"UPDATE pairmill_lease SET {killed}run_id = 'run'")
            assert main(("status", "--lake", str(tmp_path / "lake"))) == 0
            found.append([line for line in capsys.readouterr().out.splitlines() if "waiting" in line])
    assert found == [["now      captions: waiting for a node"], [], []]


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """What one run told. The tests may run in several processes, and a cluster takes a minute."""
    return json.loads((made_once("waiting", _tell) / "told.json").read_text())


def _tell(folder: Path) -> None:
    """Write what a run said, and `pairmill status` beside it, until a node was launched, and when none could be."""
    folder.mkdir()
    lake, gate = str(new_lake(folder / "lake")), folder / "gate"
    with growing_cluster(gate) as joining, run_on(lake, joining) as run:
        found: dict[str, Any] = {"before": heard(run, "1 being launched"), "status before": status(lake)}
        gate.touch()
        found["node"], found["status after"] = heard(run, '"done"'), status(lake)
        found["rows"] = saw(lake)
        go_on(run)
        found["refused"], found["status refused"] = heard(run, '"refused"'), status(lake)
        go_on(run)
        assert run.wait(120) == 0
        strangers = ({**joining, "RAY_AUTH_MODE": "disabled"}, {**joining, "OTHER_RAY": "2.1.0"})
        commands = [subprocess.run([sys.executable, "-c", JOIN], env=each, capture_output=True) for each in strangers]
        found["strangers"] = [done.stdout.decode() for done in commands]
    (folder / "told.json").write_text(json.dumps(found))


@contextmanager
def run_on(lake: str, joining: dict[str, str]) -> Iterator[subprocess.Popen]:
    command = [sys.executable, "-c", PROGRAM, lake]
    with subprocess.Popen(command, env=joining, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        try:
            yield run
        finally:
            run.kill()


def heard(run: subprocess.Popen, sign: str) -> list[tuple]:
    """What the run says up to the line that has the sign: ("shown", step, text), ("log", text)."""
    found: list[tuple] = []
    assert run.stdout
    for line in run.stdout:
        if line.startswith('{"kind"'):
            said = json.loads(line)
            found.append((said["kind"], *said["about"]))
            if sign in line and said["kind"] != "log":
                return found
    raise AssertionError(f"the run ended without {sign}: {found}")


def go_on(run: subprocess.Popen) -> None:
    assert run.stdin
    run.stdin.write("\n")
    run.stdin.flush()


def status(lake: str) -> list[str]:
    command = [sys.executable, "-m", "pairmill.flows.command.cli", "status", "--lake", lake]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def saw(lake: str) -> list[str]:
    """Which GPUs the worker of each row saw."""
    with create_or_open(lake, read_only=True) as opened:
        return [bytes(row).decode().split()[-1] for (row,) in opened.query("SELECT image_vector FROM image_embedding")]


@pytest.mark.slow
def test_status_says_what_a_run_waits_for_until_the_node_is_there(told: dict[str, Any]):
    (now,) = [line for line in told["status before"] if line.startswith("now ")]
    assert re.fullmatch(rf"now +captions: {WAITS}", now)
    assert any("'curate demo'" in line for line in told["status after"])
    assert not any(line.startswith("now ") for line in told["status after"])


@pytest.mark.slow
def test_the_stage_is_done_on_the_node_that_was_launched_for_it(told: dict[str, Any]):
    assert told["rows"] == ["0"] * 6


@pytest.mark.slow
def test_who_watches_the_run_sees_each_change_and_the_log_only_when_it_begins_and_ends(told: dict[str, Any]):
    said = told["before"] + told["node"]
    shown = [text for kind, *about in said if kind == "shown" for step, text in [about] if step == "captions"]
    assert re.fullmatch(WAITS, shown[-2]) and shown[-1] == "" and "" not in shown[:-1] and len(set(shown)) == len(shown)
    logged = [about[0] for kind, *about in said if kind == "log" and "node" in about[0]]
    assert logged[0] == shown[0] and re.fullmatch(r"waited \d+ s for a node", logged[1]) and len(logged) == 2


@pytest.mark.slow
def test_what_no_node_can_be_launched_for_is_refused_and_no_longer_shown(told: dict[str, Any]):
    *before, (_, said) = told["refused"]
    assert "asks for 2 CPUs and 4 GPUs" in said and "it launches none for this" in said
    assert [about for kind, *about in before if kind == "shown"][-1] == ["tags", ""]
    assert not any(line.startswith("now ") for line in told["status refused"])


@pytest.mark.slow
def test_who_has_no_token_or_another_version_of_ray_is_told_in_one_line(told: dict[str, Any]):
    token, version = told["strangers"]
    assert token == (
        "--ray auto: the cluster asks for a token, and this process has none or another. Set RAY_AUTH_MODE=token, and "
        "RAY_AUTH_TOKEN to the cluster's token, or store it in ~/.ray/auth_token.\n"
    )
    assert re.fullmatch(
        r"--ray auto: Version mismatch: .* Ray: 2\.60\.0 .* Ray: 2\.1\.0 .* Install the same Ray and Python .*\n",
        version,
    )
