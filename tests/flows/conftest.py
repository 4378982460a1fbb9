"""A small generated world and the smallest of models: real code and files, random weights."""

from pathlib import Path

import pytest

from flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.generated import small_settings, world
from tests.worlds.line import curate
from tests.worlds.shared import copied, made_once


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
