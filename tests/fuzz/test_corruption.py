"""Check that a damaged lake gives the undamaged one's answers or refuses in one line: a bounded run of the fuzzer."""

import random
from pathlib import Path

import pytest

from tests.fuzz.corruption import Attack


def attack(place: Path, times: int, seed: int, without: tuple[str, ...] = ()) -> None:
    """Damage a lake ``times`` times; check that some answers were right and some refused."""
    attacked, found = Attack(place, without), {"right": 0, "refused": 0}
    for number in range(times):
        for answer, n in attacked.once(random.Random(f"{seed} {number}")).items():
            found[answer] += n
    assert all(found.values()), found


def test_no_command_that_reads_gives_anything_wrong_on_a_lake_with_one_damaged_file(tmp_path: Path):
    attack(tmp_path, times=3, seed=0, without=("status", "run"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_command_gives_anything_wrong_on_forty_lakes_with_one_damaged_file_each(tmp_path: Path):
    attack(tmp_path, times=40, seed=1)
