"""The price of the catalog is a number of statements and commits, which a slow machine makes no larger.

Bounds are what was counted (``python -m infra.bench.fixed_cost`` has the table) and a tenth more: a heartbeat each 20 s
and a commit each 5 s of a stage come on top where a machine is busy.
"""

from pathlib import Path

import pytest

from tests.worlds.commands import Tell
from tests.worlds.line import counting, first_run_counts


@pytest.mark.slow
def test_a_run_over_a_copied_lake_and_one_with_another_cap_ask_little(
    curated_copy: Path, pages: Path, settings: dict[str, str], tell: Tell
) -> None:
    words = ["run", "demo", "--source", str(pages), "--lake", str(curated_copy), "--workers", "2"]
    words += [f"--set={key}={value}" for key, value in settings.items()]
    with counting() as counts:
        tell(*words)
    statements, metadata, commits = *counts.statements.values(), counts.commits
    assert 0 < statements <= 260 and metadata <= 130 and 0 < commits <= 6, (statements, metadata, commits)
    with counting() as counts:
        tell(*words, "--set=balance.cap=2")
    statements, metadata, commits = *counts.statements.values(), counts.commits
    # No step that measures lists its pending work or asks for edges again, and recall is not measured anew.
    assert 0 < statements <= 325 and metadata <= 220 and 0 < commits <= 6, (statements, metadata, commits)


def test_a_first_run_commits_what_it_did_and_nothing_by_itself() -> None:
    statements, metadata, commits = first_run_counts().values()
    assert 0 < statements <= 940 and metadata <= 330 and 0 < commits <= 52, (statements, metadata, commits)
