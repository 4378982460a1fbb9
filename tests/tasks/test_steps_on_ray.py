"""With Ray named, Ray's workers do every stage of a run, however small, and the dataset is that of the process pool."""

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.worlds.generated import pages, small_settings
from tests.worlds.line import curated_lake, snapshot
from tests.worlds.shared import made_once, new_lake

PROGRAM = """
import json, sys
from pairmill.tasks.run.pool import pool
from tests.worlds.line import curate
pool.run_in_pool = None
lake, source, settings = sys.argv[1:]
_, counts = curate(lake, source, settings=json.loads(settings), workers=1, ray_address="local")
print(json.dumps(counts))
"""
# Each stage of the run, with the name that Ray's dashboard and logs have for its workers.
OPERATORS = {
    "ingest": "ingest",
    "score images": "model clip",
    "count words": "count words",
    "score entropy": "score entropy",
    "score sentences": "score sentences",
    "parse sentences": "model parser",
    "score perplexity": "model perplexity",
    "embed sentences": "model clip",
    "assign sentence clusters": "assign sentence clusters",
    "assign image routes": "assign image routes",
    "assign image clusters": "assign image clusters",
    "semantic duplicates": "semantic duplicates",
    "associate": "associate",
    "score similarity": "model clip",
    "assign balance clusters": "assign balance clusters",
    "caption main": "model captioner",
    "score captions": "model clip",
    "tag": "model clip",
    "fuse": "model captioner",
    "score fused texts": "model clip",
}
# What the run's own process computes over all rows at once.
GLOBAL = re.compile("train .*|perceptual .*duplicates|group .*duplicates")


def run_on_ray(folder: Path) -> None:
    """Run the line once on a Ray of its own; store the lake, the work items by stage, and the names of Ray's workers.

    An address that nobody answers at, as a killed Ray leaves it, keeps no run from a Ray of its own.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:  # a socket's path has at most 107 bytes
        given = [str(new_lake(folder / "lake")), str(pages()), json.dumps(small_settings())]
        environment = {**os.environ, "RAY_ADDRESS": "127.0.0.1:9", "RAY_TMPDIR": place}
        done = subprocess.run([sys.executable, "-c", PROGRAM, *given], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        logs = "".join(file.read_text() for file in Path(place).glob("ray/session_2*/logs/worker-*.out"))
    workers = re.findall(r":actor_name:MapWorker\(MapBatches\(pairmill (.*)\)\)", logs)
    told = {"counts": json.loads(done.stdout.splitlines()[-1]), "workers": workers}
    (folder / "told.json").write_text(json.dumps(told))


@pytest.fixture(scope="module")
def ran() -> Path:
    return made_once("on-ray", run_on_ray)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("stage", OPERATORS)
def test_rays_workers_do_each_stage(ran: Path, stage: str):
    told = json.loads((ran / "told.json").read_text())
    assert told["counts"][stage] > 0
    assert OPERATORS[stage] in told["workers"]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_on_ray_leaves_no_stage_to_the_pool_and_gives_its_dataset(ran: Path):
    stages = {name for name in json.loads((ran / "told.json").read_text())["counts"] if not GLOBAL.fullmatch(name)}
    assert stages == OPERATORS.keys()
    assert snapshot(ran / "lake") == snapshot(curated_lake())
