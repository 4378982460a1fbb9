"""Check that a damaged lake gives the undamaged one's answers or refuses in one line: a bounded run of the fuzzer."""

import random
from pathlib import Path

import pytest

from tests.fuzz.corruption import DEAR, Attack


def attack(place: Path, times: int, seed: int, dear_every: int) -> None:
    """Damage a lake ``times`` times; check that some answers were right and some refused.

    The dear commands run on one lake in ``dear_every``.
    """
    attacked, found = Attack(place), {"right": 0, "refused": 0}
    for number in range(times):
        without = DEAR if number % dear_every else ()
        for answer, n in attacked.once(random.Random(f"{seed} {number}"), without).items():
            found[answer] += n
    assert all(found.values()), found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_command_gives_anything_wrong_on_five_lakes_with_one_damaged_file_each(tmp_path: Path):
    """`make fuzz` runs every command on each of its 700 lakes."""
    attack(tmp_path, times=5, seed=1, dear_every=5)
