"""A kill while each kind of state is written, then a flipped bit: it is found, and the next run ends as it would."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.killed_in import STATES, TAR_ROWS
from tests.worlds.line import rows
from tests.worlds.shared import copied, made_once

pytestmark = pytest.mark.slow
DATASETS = "SELECT version, content_digest FROM datasets ORDER BY version"


def recut(pages: Path, settings: dict[str, str]) -> list[str]:
    """A run that has a version to publish, and nothing to score."""
    changed = settings | {"images.short_side.keep": "least(width, height) >= 100"}
    return ["run", "demo", "--source", str(pages), *(f"--set={key}={value}" for key, value in changed.items())]


@pytest.fixture(scope="session")
def recut_lake(curated: Path, pages: Path, settings: dict[str, str]) -> Path:
    """What the run gives that nothing disturbs."""

    def make(place: Path) -> None:
        assert main([*recut(pages, settings), "--lake", str(copied(curated, place))]) == 0

    return made_once("recut-lake", make)


def killed(state: str, *arguments: str) -> None:
    command = [sys.executable, "-m", "tests.worlds.killed_in", state, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == -9, done.stderr[-2000:]


@contextmanager
def flipped_bit(file: Path) -> Iterator[None]:
    whole = file.read_bytes()
    harmed = bytearray(whole)
    harmed[len(whole) // 2] ^= 1
    file.write_bytes(harmed)
    yield
    file.write_bytes(whole)


def file_of(lake: Path, table: str) -> Path:
    """The newest file of a table that is committed."""
    files = rows(lake, f"SELECT data_file FROM ducklake_list_files('lake', '{table}')")
    return max((Path(file) for (file,) in files), key=lambda file: file.stat().st_mtime_ns)


def is_refused(capsys: pytest.CaptureFixture[str], file: Path, *arguments: str) -> None:
    with flipped_bit(file):
        assert main(arguments) == 1
        told = capsys.readouterr().err
    assert told.count("\n") == 1 and str(file) in told and "damaged" in told and "Put it back" in told


@pytest.mark.parametrize("state", [
    pytest.param(state, marks=() if state in ("publish", "seal") else pytest.mark.full)  # 4 times 13 CPU s
    for state in STATES if state != "export"
])  # fmt: skip
def test_a_run_that_is_killed_there_leaves_what_is_checked_and_the_next_ends_as_it_would(
    state: str, recut_lake: Path, curated_copy: Path, pages: Path, settings: dict[str, str], capsys
):
    lake, command = curated_copy, recut(pages, settings)
    killed(state, *command, "--lake", str(lake))
    expected = rows(recut_lake, DATASETS)
    assert len(expected) == 2
    assert rows(lake, DATASETS) == expected[: 2 if state == "digests" else 1]
    is_refused(capsys, file_of(lake, "pairs"), "sql", "SELECT * FROM pairs", "--lake", str(lake))
    assert main([*command, "--lake", str(lake)]) == 0
    assert rows(lake, DATASETS) == expected and rows(lake, "SELECT * FROM lease") == []
    capsys.readouterr()
    is_refused(capsys, lake / "catalog.sqlite", "datasets", "--lake", str(lake))
    is_refused(capsys, file_of(lake, "decisions"), "sql", "SELECT * FROM decisions", "--lake", str(lake))


def test_an_export_that_is_killed_between_two_files_goes_on_and_hands_out_no_damaged_picture(
    curated_copy: Path, tmp_path: Path, tell: Tell, capsys, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", TAR_ROWS)
    lake, whole, out = str(curated_copy), tmp_path / "whole", tmp_path / "out"
    tell("export", "demo", "--to", str(whole), "--lake", lake)
    command = ["export", "demo", "--to", str(out), "--lake", lake]
    killed("export", *command)
    assert len(list(out.glob("*.tar"))) == 1 < len(list(whole.glob("*.tar")))
    is_refused(capsys, file_of(curated_copy, "pairs"), *command)
    tell(*command)
    for path in whole.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes(), path.name
