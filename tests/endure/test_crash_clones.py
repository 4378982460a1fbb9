"""A power cut at any moment of a run leaves a lake that opens to a committed state, and goes on to the same dataset."""

import shutil
from pathlib import Path

import pytest

from infra.endure import power_loss
from pairmill.catalog.lake import seal
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.location import locate
from pairmill.catalog.terms.error import Damaged
from tests.worlds.shared import new_lake


@pytest.mark.slow  # a run under strace takes 20 s, each clone is read whole; `make powerloss` has 510
def test_no_power_cut_costs_what_was_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if shutil.which("strace") is None:
        pytest.skip("strace is not here")
    monkeypatch.setattr(seal, "host_since_boot", seal.host_since_boot)  # put back after the test
    found = power_loss.trial(tmp_path, prefixes=6, documents=3, seed=3, rerun=6)
    assert found.total() == 6
    assert {said.partition(",")[0] for _, said in found} == {"whole"}, found
    assert all(said in ("whole", "whole, then the same dataset") for _, said in found), found


def rebooted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "host_since_boot", lambda: f"{host_since_boot()} again")


@pytest.mark.parametrize("content", [b"", bytes(200)])
def test_the_name_of_a_seal_without_its_content_is_no_damage(content: bytes, tmp_path: Path):
    place = new_lake(tmp_path / "lake")
    (place / "catalog.sqlite.seal").write_bytes(content)
    seal.check(locate(place))


def test_a_writers_seal_is_for_one_boot_and_that_of_a_closed_lake_for_all(tmp_path: Path, monkeypatch):
    place = new_lake(tmp_path / "lake")
    with seal.Seal(locate(place)).broken():
        pass
    with open(place / "catalog.sqlite", "ab") as catalog:
        catalog.write(b"a page that reached the disk after the seal")
    with pytest.raises(Damaged):
        seal.check(locate(place))
    with monkeypatch.context() as patch:
        rebooted(patch)
        seal.check(locate(place))
    with seal.closing(locate(place)):
        pass
    (place / "catalog.sqlite").write_bytes(b"other bytes")
    rebooted(monkeypatch)
    with pytest.raises(Damaged):
        seal.check(locate(place))
