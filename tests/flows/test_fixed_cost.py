"""The price of the catalog is a number of statements and commits, which a slow machine makes no larger.

Bounds are what was counted (``python -m infra.bench.fixed_cost`` has the table) and a tenth more: a heartbeat each 20 s
and a commit each 5 s of a stage come on top where a machine is busy.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.bench.fixed_cost import COUNTED


def counted(out: Path, pages: Path, lake: Path, settings: dict[str, str]) -> tuple[int, int, int]:
    """Run the demo recipe in a process; return its statements, those on the metadata database, and its commits."""
    chosen = [f"--set={key}={value}" for key, value in settings.items()]
    words = ["run", "demo", "--source", str(pages), "--lake", str(lake), "--workers", "2", *chosen]
    subprocess.run([sys.executable, "-P", str(COUNTED), str(out), *words], check=True, capture_output=True)
    found = json.loads(out.read_text())
    return found["duckdb"], found["metadata"], found["commits"]


def test_a_run_over_a_copied_lake_and_one_with_another_cap_ask_little(
    curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    statements, metadata, commits = counted(tmp_path / "counts", pages, curated_copy, settings)
    assert statements <= 250 and metadata <= 130 and commits <= 6, (statements, metadata, commits)
    other_cap = settings | {"balance.cap": "2"}
    statements, metadata, commits = counted(tmp_path / "counts", pages, curated_copy, other_cap)
    # Every step lists its pending work again: `recut` publishes another cap without that.
    assert statements <= 417 and metadata <= 220 and commits <= 6, (statements, metadata, commits)


@pytest.mark.slow
def test_a_first_run_commits_what_it_did_and_nothing_by_itself(
    pages: Path, settings: dict[str, str], tmp_path: Path
) -> None:
    statements, metadata, commits = counted(tmp_path / "counts", pages, tmp_path / "lake", settings)
    assert statements <= 960 and metadata <= 330 and commits <= 52, (statements, metadata, commits)
