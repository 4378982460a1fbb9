"""Which GPUs a machine has where no NVIDIA device file says so: behind Windows, and AMD's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.tasks.run.place import resources as found
from pairmill.tasks.run.place.resources import devices, devices_by_worker

LISTED = "GPU 0: NVIDIA RTX A6000 (UUID: GPU-1)\nGPU 1: NVIDIA RTX A6000 (UUID: GPU-2)"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine whose kernel shows nothing yet."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, place in (("NVIDIA", "dev"), ("WSL", "dev/dxg"), ("AMD", "nodes")):
        monkeypatch.setattr(found, name, tmp_path / place)
    monkeypatch.setattr(found, "WSL_TOOLS", str(tmp_path / "tools"))
    monkeypatch.setenv("PATH", os.defpath)
    (tmp_path / "dev").mkdir()
    yield tmp_path
    found._n_listed.cache_clear()


def test_behind_windows_the_cards_are_those_that_nvidia_smi_lists(machine: Path):
    (machine / "dev" / "dxg").touch()
    assert devices() == ()  # a card of another maker
    found._n_listed.cache_clear()
    (machine / "tools").mkdir()
    tool = machine / "tools" / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{LISTED}'\n")
    tool.chmod(0o755)
    assert devices() == ("0", "1") and devices_by_worker(1) == ("0", "1")


def test_amds_cards_count_where_torch_is_built_for_them(machine: Path, monkeypatch: pytest.MonkeyPatch):
    for node, units in enumerate((0, 304, 304)):
        (machine / "nodes" / str(node)).mkdir(parents=True)
        (machine / "nodes" / str(node) / "properties").write_text(f"cpu_cores_count 8\nsimd_count {units}\n")
    assert devices() == ()
    monkeypatch.setattr(found, "torch_build", lambda: {"hip": "6.4"})
    assert devices() == ("0", "1")


def test_a_cpu_worker_sees_no_card_even_where_none_is_found(machine: Path):
    assert devices() == () and devices_by_worker(0) == ("",)
