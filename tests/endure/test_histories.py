"""Histories of commands, many of them killed somewhere, on a lake that must equal a model after each: short form."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from infra.endure.lake_model import Held, LakeModel

# One history a catalog, in which three and two commands are killed: 20 CPU s each; `make chaos` has 300.
SEEDS = {"SQLite": "20002", "Postgres": "30014"}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("catalog", SEEDS)
def test_after_commands_that_are_killed_anywhere_a_lake_equals_its_model(catalog: str, tmp_path: Path):
    more = ["--postgres"] if catalog == "Postgres" else []
    (tmp_path / "lakes").mkdir()
    command = [sys.executable, "-m", "infra.endure.histories", "--seed", SEEDS[catalog], "--times", "1", *more,
               "--to", str(tmp_path / "sums.json"), "--keep", str(tmp_path / "lakes")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    sums = json.loads((tmp_path / "sums.json").read_text())[catalog]
    assert sums["histories"] == 1 and sums["killed"] > 0


def test_the_model_finds_what_a_lake_has_lost_and_what_has_come_back():
    held = Held(pictures={(0, 0): frozenset([1, 2]), (1, 0): frozenset([2])}, payloads=frozenset([1, 2]),
                indexed=frozenset([1, 2]), versions={("small", 1): frozenset([(1, (0, 0)), (2, (0, 0))])})  # fmt: skip
    left = held.without_page(0)
    assert left.pictures == {(1, 0): {2}} and left.payloads == {2} and left.banned == {1}
    assert left.versions == {("small", 1): frozenset()}
    assert held.without_picture(2).versions == {("small", 1): {(1, (0, 0))}}

    def faults_after(found: Held, source: dict[int, int]) -> list[str]:
        model = LakeModel({1: 61, 2: 62}, left, {0})
        model.ran(found, source, frozenset(), "run", whole=True)
        model.published(found, "small", model.kept(found, 62), "run")
        model.saw(found, "run")
        return model.faults

    assert faults_after(left, {0: 0, 1: 0}) == ["run: small@1 has set() instead of {2}"]
    assert any("documents {(1, 0)} are lost" in fault for fault in faults_after(Held(), {1: 0}))
    assert any("were removed, and are there" in fault for fault in faults_after(held, {0: 0, 1: 0}))
