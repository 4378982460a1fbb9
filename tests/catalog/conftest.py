"""A fresh lake a test, and what puts rows into it the way the stages do."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from tests.worlds.shared import opened_new


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with opened_new(tmp_path / "lake") as opened:
        yield opened
