"""`pairmill verify` tells whether a version's decisions are what its recipe makes of the scores."""

import re
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell


def test_a_version_that_agrees_and_one_that_does_not(
    curated_copy: Path, tell: Tell, capsys: pytest.CaptureFixture[str]
):
    told = tell("verify", "demo", "--lake", str(curated_copy))
    assert re.search(
        r"^[\d,]+ decisions and the texts of [\d,]+ pairs computed again from the scores\nall agree$", told, re.M
    )
    with create_or_open(curated_copy) as lake:
        [(image_id,)] = lake.query("SELECT image_id FROM pairs LIMIT 1")
        lake.execute(f"UPDATE decisions SET dropped_by = 'balance' WHERE item_id = '{image_id}'")
    assert main(["verify", "demo@1", "--lake", str(curated_copy)]) == 1
    told = capsys.readouterr().out
    assert f"{image_id}: the version has dropped by 'balance', the second cut kept" in told
    assert "1 differ; `pairmill why IMAGE` explains one" in told
