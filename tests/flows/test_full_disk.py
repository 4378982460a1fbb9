"""A disk that fills in the middle is told in one line with the remedy, and the next run goes on."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.worlds.full_disk import on_small_disk

pytestmark = pytest.mark.slow
N = 30


def large_pictures(folder: Path) -> Path:
    folder.mkdir()
    for n in range(N):
        pixels = np.random.default_rng(n).integers(0, 255, (300, 400, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{n:04d}.jpg")
    return folder


# Bytes that are left: for no journal, for no commit, and for half of the pictures, which workers write.
@pytest.mark.parametrize(("what", "left"), [("ingest", 0), ("ingest", 1_500_000), ("publish", 0), ("publish", 70_000)])
def test_what_a_full_disk_stopped_is_told_and_done_by_the_next_run(what: str, left: int, tmp_path: Path):
    source = [str(large_pictures(tmp_path / "source"))] if what == "ingest" else []
    told = on_small_disk("tests.worlds.filled_while", tmp_path / "disk", 12, str(left), what, *source)
    full, free = json.loads(told.splitlines()[-1])
    assert full["said"], full["error"]
    assert (
        "\n" not in full["said"] and "disk is full" in full["said"] and "Free some space and run again" in full["said"]
    )
    assert free["said"] == "" and len(free["held"]) == (N if what == "ingest" else 1)
    assert what == "ingest" or free["held"][0][2:] == [6, 6]
