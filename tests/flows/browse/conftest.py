"""The pages of the shared curated lake, and of a small lake that a test may change."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.ops.whole import projection
from tests.worlds.browsed import Pages, browsed
from tests.worlds.line import curated_lake
from tests.worlds.published import published


@pytest.fixture(scope="session", autouse=True)
def plain_layout() -> Iterator[None]:
    """Maps by principal components: UMAP compiles its loops for 30 s, and is tested with its op."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection, "layout", lambda: "components")
        yield


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the curated lake, beside which the browser may put its files."""
    from shutil import copytree

    return Path(copytree(curated_lake(), tmp_path_factory.mktemp("browsed") / "lake"))


@pytest.fixture(scope="session")
def pages(lake: Path) -> Iterator[Pages]:
    with browsed(lake) as opened:
        yield opened


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of 30 pictures, of which a cap and a rule drop some."""
    folder = tmp_path_factory.mktemp("small")
    published(folder / "lake", pictures=30, cap=3, clusters=3)
    return folder / "lake"


@pytest.fixture(scope="session")
def small_pages(small: Path) -> Iterator[Pages]:
    with browsed(small) as opened:
        yield opened
