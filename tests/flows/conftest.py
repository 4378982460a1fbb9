"""A small generated world and the smallest of models: real code and files, random weights."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.command.cli import main
from tests.worlds.line import curate
from tests.worlds.shared import copied, made_once

Tell = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


def run_unread(arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """Run `pairmill` as a process whose standard output nobody reads."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "flows.command.cli", *arguments]
    try:
        return subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=300)
    finally:
        os.close(write)


def generate(out: Path, seed: int, documents: int) -> Path:
    command = [sys.executable, ROOT / "infra/demo/generate.py", "--seed", seed, "--documents", documents, "--out", out]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return out / "pages"


def world(seed: int, documents: int) -> Path:
    """The pages of a world that all tests of this run share."""
    return made_once(f"world-{seed}", lambda place: generate(place, seed, documents)) / "pages"


@pytest.fixture(scope="session")
def pages() -> Path:
    return world(seed=11, documents=72)


@pytest.fixture(scope="session")
def more_pages() -> Path:
    return world(seed=12, documents=10)


@pytest.fixture(scope="session")
def few_pages() -> Path:
    return world(seed=13, documents=18)


@pytest.fixture(scope="session")
def settings() -> dict[str, str]:
    return small_settings()


def small_settings() -> dict[str, str]:
    """Overrides of the demo recipe: random models, eight shards of nine documents, short captions."""
    return {
        "models.clip": f"open_clip:local-dir:{made_once('clip', _save_clip)}",
        "models.captioner": f"hf:{made_once('vlm', _save_vlm)}",
        "ingest.documents_per_shard": "9",
        "duplicates.cosine": "0.99999",
        "captioners.0.max_tokens": "4",
        "captioners.0.side": "64",
        "images.pair_similarity.keep": "synthetic_similarity >= -1",
        "images.whole_text.keep": "true",
        "fuse.model": "captioner",
        "fuse.max_tokens": "4",
        "fuse.side": "64",
        "decoding.side": "64",
        "association.max_uses": "1000",
    }


def _save_clip(folder: Path) -> None:
    from tests.worlds.tiny import save_clip

    save_clip(folder)


def _save_vlm(folder: Path) -> None:
    from tests.worlds.tiny_vlm import save_vlm

    save_vlm(folder, "idefics3")


@pytest.fixture(scope="session")
def curated(pages: Path, settings: dict[str, str]) -> Path:
    """The lake of one undisturbed run over ``pages``, to be read only: what writes takes a copy."""
    return made_once("curated-lake", lambda place: curate(place, pages, settings=settings))


@pytest.fixture
def curated_copy(curated: Path, tmp_path: Path) -> Path:
    """The same lake for one test alone."""
    return copied(curated, tmp_path / "lake")


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Run one command that must succeed; gives what it printed."""

    def told(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return told
