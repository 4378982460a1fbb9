"""The topology of infra/compose, as processes: the whole line on Ray gives the dataset of the process pool.

The machines share no folder. One lacks something and is found, one is lost in the run, and one joins.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from tests.worlds.data_bucket import bucket as bucket
from tests.worlds.elsewhere import postgres as postgres
from tests.worlds.elsewhere import write_yaml
from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curate, snapshot
from tests.worlds.s3 import upload
from tests.worlds.team_cluster import prefect_on_postgres, ray_nodes

SECONDS = 2400
ON_RAY = {
    "ingest",
    "score_images",
    "score_entropy",
    "score_sentences",
    "cluster",
    "group_duplicates",
    "associate",
    "cluster_survivors",
    "caption",
    "fuse",
}  # all tasks that start workers: tags are made by CLIP's, which the captions' scores have left

START = """
import json, sys
from prefect.client.orchestration import get_client
with get_client(sync_client=True) as client:
    deployment = client.read_deployment_by_name("curate/demo")
    run = client.create_flow_run_from_deployment(deployment.id, parameters=json.loads(sys.argv[1]))
    print(run.id)
"""


def asked(code: str, argument: str, environment: dict[str, str]) -> list[str]:
    """Run a script of Prefect's client with the server's environment; return the lines that it prints."""
    command = ["env", *(f"{name}={value}" for name, value in environment.items()), sys.executable, "-c", code, argument]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def state(run: str, environment: dict[str, str]) -> tuple[str, str]:
    """Return the name and the message of a run's state."""
    with urlopen(f"{environment['PREFECT_API_URL']}/flow_runs/{run}", timeout=60) as answer:
        found = json.load(answer)["state"]
    return found["name"], found["message"]


def commits(lake: Path) -> int:
    """Count the lake's commits; 0 before it is made."""
    try:
        with create_or_open(lake, read_only=True) as opened:
            return opened.query("SELECT count(*) FROM commits")[0][0]
    except PairmillError:
        return 0


def lacking(lake: Path, environment: dict[str, str]) -> dict[str, list[str]]:
    """Return node -> the checks that fail there, as `pairmill doctor` finds them."""
    command = [sys.executable, "-m", "pairmill", "doctor", "demo", "--ray", environment["RAY_ADDRESS"], "--lake", lake,
               "--source", "s3://data/pages", "--format", "json"]  # fmt: skip
    done = subprocess.run([*map(str, command)], env={**os.environ, **environment}, capture_output=True, text=True)
    found: dict[str, list[str]] = {}
    for row in json.loads(done.stdout):
        found.setdefault(row["node"], []).extend([row["check"]] if row["state"] == "fail" else [])
    assert done.returncode == int(any(found.values())), done.stderr[-2000:]
    return found


@pytest.mark.skipif("PAIRMILL_TEAM_CLUSTER" not in os.environ, reason="`make test-full` runs it: 10 minutes or more")
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_team_gets_the_dataset_of_one_machine_although_a_machine_is_lost_and_one_joins(
    bucket: Any, postgres: str, tmp_path: Path
):
    upload(bucket, pages(), "pages/", "data")
    lake = write_yaml(tmp_path / "team", metadata=postgres, data_path="s3://data/lake")
    with (
        ray_nodes() as ray,
        prefect_on_postgres(tmp_path / "prefect", postgres, lake, ray) as environment,
    ):
        ray.add("first", 1)
        ray.add("second", 1, AWS_ENDPOINT_URL="http://127.0.0.1:9")
        assert sorted(lacking(lake, environment).values()) == [[], [], ["sources", "lake"]]
        ray.kill("second")
        ray.add("third", 1)
        compute = {"ray_address": "auto"}
        given = {"sources": ["s3://data/pages"], "overrides": small_settings(), "compute": compute}
        run = asked(START, json.dumps(given), environment)[0]
        deadline, is_lost = time.monotonic() + SECONDS, False
        while (found := state(run, environment))[0] not in ("Completed", "Failed", "Crashed"):
            assert time.monotonic() < deadline, found
            if not is_lost and commits(lake) >= 12:
                ray.kill("third")
                ray.add("fourth", 1)
                is_lost = True
            time.sleep(2)
        assert found[0] == "Completed", found
        assert is_lost
        log = (tmp_path / "prefect/pairmill/prefect-worker.log").read_text()
    assert set(re.findall(r"Task run '(\w+)-\w+' - workers' logs are on each machine", log)) == ON_RAY
    curate(tmp_path / "alone", "s3://data/pages", settings=small_settings())
    assert snapshot(lake) == snapshot(tmp_path / "alone")
    assert {path.name for path in (tmp_path / "team").iterdir()} == {"lake.yaml", "reports"}  # no data
