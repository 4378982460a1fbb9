"""With `--log-format json` every line on standard error is one JSON object, whichever process wrote it."""

import json
import logging
import os
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from jsonschema import validate

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.json_log import json_lines
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.stage import JobStage
from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.line import rows

SCHEMA = {
    "type": "object",
    "required": ["time", "level", "run", "stage", "shard", "message"],
    "additionalProperties": False,
    "properties": {
        "time": {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$"},
        "level": {"enum": ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]},
        "run": {"type": "string", "pattern": "^([0-9a-f]{32})?$"},
        **{name: {"type": "string"} for name in ("stage", "shard", "message")},
    },
}
RUN = "0123456789abcdef" * 2
HERE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Talks:
    """A job that logs, warns, prints to standard error, and writes there by no means of Python."""

    def __call__(self, item: WorkItem) -> list[Part]:
        logging.getLogger("anyone").warning("logged\nin two lines")
        warnings.warn("warned", stacklevel=1)
        print("printed", file=sys.stderr, flush=True)
        os.write(2, b"written\n")
        return []


def talk(folder: str) -> None:
    """Run the job in a worker, with JSON lines."""
    with json_lines(), JobStage(Talks(), Placement(workers=1)) as stage:
        list(stage.run([WorkItem("a shard", ("a",))], Output(f"{folder}/", RUN, 1, "a step")))


def lines_of(*command: str) -> tuple[int, list[dict]]:
    """Run Python; return its exit status and its lines on standard error, each checked by the schema."""
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=600, cwd=HERE)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    for line in lines:
        validate(line, SCHEMA)
    return done.returncode, lines


def pairmill(*arguments: str) -> tuple[int, list[dict]]:
    """Run a command of `pairmill` with JSON logs."""
    return lines_of("-m", "pairmill.flows.command.cli", *arguments, "--log-format", "json")


def test_an_error_is_a_line_of_the_log(tmp_path: Path):
    status, lines = pairmill("run", "demo", "--source", str(tmp_path / "none"), "--lake", str(tmp_path / "lake"))
    assert status == 1
    assert lines[-1]["level"] == "ERROR" and str(tmp_path / "none") in lines[-1]["message"]


@pytest.mark.slow
def test_each_line_of_a_run_names_run_and_step(more_pages: Path, settings: dict[str, str], tmp_path: Path):
    lake = tmp_path / "lake"
    changed = [f"--set={key}={value}" for key, value in (settings | PICTURES_ALONE | {"captioners": "[]"}).items()]
    status, lines = pairmill("run", "demo", "--source", str(more_pages), "--lake", str(lake), *changed)
    assert status == 0
    [(run,)] = rows(lake, "SELECT run_id FROM runs")
    steps = [(line["run"], line["stage"], line["level"]) for line in lines if "items" in line["message"]]
    assert steps[:2] == [(run, "ingest", "INFO")] * 2
    assert {(at, level) for at, _, level in steps} == {(run, "INFO")} and all(stage for _, stage, _ in steps)


def test_what_a_worker_writes_by_any_means_is_a_line(tmp_path: Path):
    status, lines = lines_of("-c", f"from tests.flows.test_json_log import talk; talk({str(tmp_path)!r})")
    assert status == 0
    found = {line["message"]: (line["run"], line["stage"], line["shard"]) for line in lines}
    assert found["logged\nin two lines"] == (RUN, "a step", "a shard")
    assert next(at for message, at in found.items() if "warned" in message) == (RUN, "a step", "a shard")
    assert {"printed", "written"} <= {*found}
