"""A small generated world and the smallest of models: real code and files, random weights."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows.command.cli import main
from tests.ops.models.tiny import save_clip
from tests.ops.models.tiny_vlm import save_vlm

Tell = Callable[..., str]
ROOT = Path(__file__).resolve().parents[2]


def generate(out: Path, seed: int, documents: int) -> Path:
    command = [sys.executable, ROOT / "infra/demo/generate.py", "--seed", seed, "--documents", documents, "--out", out]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)
    return out / "pages"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("world"), seed=11, documents=72)


@pytest.fixture(scope="session")
def more_pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("more"), seed=12, documents=10)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Overrides of the demo recipe: random models, eight shards of nine documents, short captions."""
    return {
        "models.clip": save_clip(tmp_path_factory.mktemp("clip")),
        "models.captioner": save_vlm(tmp_path_factory.mktemp("vlm"), "idefics3"),
        "ingest.documents_per_shard": "9",
        "duplicates.cosine": "0.99999",
        "captioners.0.max_tokens": "4",
        "captioners.0.side": "64",
        "fuse.max_tokens": "4",
        "fuse.side": "64",
        "decoding.side": "64",
        "association.max_uses": "1000",
    }


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Run one command that must succeed; gives what it printed."""

    def told(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return told
