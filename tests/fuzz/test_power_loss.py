"""Copies of a lake that is being written, cut short, open to a committed state or are refused: a bounded run."""

from pathlib import Path

import pytest

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.host import host_since_boot
from tests.fuzz.power_loss import run


@pytest.mark.slow
def test_copies_of_a_lake_that_is_being_written_give_nothing_wrong(tmp_path: Path):
    found = run(8, 1, tmp_path)
    assert found.total() == 8


@pytest.mark.slow
def test_nor_do_they_after_the_machine_was_started_again(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(seal, "host_since_boot", lambda: f"{host_since_boot()} again")
    assert run(8, 2, tmp_path).total() == 8
