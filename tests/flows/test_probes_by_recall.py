"""A run that is given a recall finds the probes for it, reaches it, and finds nothing to do afterwards."""

import json
from pathlib import Path

import pytest

from tests.worlds.line import curate, rows, work_done

ROUTES = "SELECT settings FROM scorers WHERE name = 'image_routes' ORDER BY \"commit\" DESC, digest"
RECALL = "SELECT recall FROM datasets ORDER BY version DESC LIMIT 1"


@pytest.mark.slow
def test_the_fewest_probes_that_reach_the_recall_are_found_frozen_and_used(
    curated_copy: Path, pages: Path, settings: dict[str, str]
):
    asked = settings | {"association.recall": "0.95", "fuse": "null", "captioners": "[]", "tags": "null",
                        "images": "[]"}  # fmt: skip
    curate(curated_copy, pages, settings=asked)
    found = json.loads(rows(curated_copy, ROUTES)[0][0])
    assert found["recall"] == 0.95 and rows(curated_copy, RECALL)[0][0] >= 0.95
    again, counts = curate(curated_copy, pages, settings=asked)
    assert not again.is_new and work_done(counts) == {}
    assert found["probes"] > 1, "the world tells nothing about the fewest probes"
    fewer = asked | {"association.probes": str(found["probes"] - 1)}
    del fewer["association.recall"]
    curate(curated_copy, pages, settings=fewer)
    assert rows(curated_copy, RECALL)[0][0] < 0.95
