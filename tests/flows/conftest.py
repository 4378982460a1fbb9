"""A small generated world and the smallest of models: real code and files, random weights."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.flows.command.cli import main
from tests.worlds import generated
from tests.worlds.commands import Tell
from tests.worlds.line import curated_lake
from tests.worlds.prefect_server import prefect_server
from tests.worlds.shared import copied


@pytest.fixture(scope="session")
def pages() -> Path:
    return generated.pages()


@pytest.fixture(scope="session")
def more_pages() -> Path:
    return generated.world(seed=12, documents=4)


@pytest.fixture(scope="session")
def settings() -> dict[str, str]:
    return generated.small_settings()


@pytest.fixture(scope="session")
def curated() -> Path:
    """The lake of one undisturbed run over ``pages``, to be read only: what writes takes a copy."""
    return curated_lake()


@pytest.fixture
def curated_copy(curated: Path, tmp_path: Path) -> Path:
    """The same lake for one test alone."""
    return copied(curated, tmp_path / "lake")


@pytest.fixture(scope="session")
def prefect_api() -> Iterator[str]:
    """A Prefect server that tests of all processes share; what is about starting one starts its own."""
    with prefect_server() as api:
        yield api


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Tell:
    """Run one command that must succeed; gives what it printed."""

    def told(*arguments: str) -> str:
        assert main(arguments) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return told
