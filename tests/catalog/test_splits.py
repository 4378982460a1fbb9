"""Splits and sizes of published pairs: groups stay together, pairs keep their split, and sizes are nested."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe, validate
from pairmill.catalog.upkeep.amended_versions import is_as_published
from pairmill.ops.whole.components import components
from tests.worlds.shared import opened_new

SPLITS = {"train": 0.8, "val": 0.1, "test": 0.1}
TABLES = ("images", "image_content", "image_quality", "image_groups", "pairs", "decisions", "funnel", "datasets")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with opened_new(tmp_path_factory.mktemp("splits") / "lake") as lake:
        yield lake


@pytest.fixture
def lake(made: Lake) -> Iterator[Lake]:
    """An empty lake."""
    yield made
    with made.transaction():
        for table in TABLES:
            made.execute(f"DELETE FROM {table}")


def recipe_of(**more) -> Recipe:
    settings = {"name": "divided", "models": {}, "duplicates": {"phash": 4, "cosine": None}, "association": "none"}
    return validate(settings | {"balance": {"cap": "none"}} | more, "divided")


def plan_of(**more) -> Plan:
    return compile_plan(recipe_of(**more), {"image_groups": "g", "image_quality": "q"})


def add(lake: Lake, first: int, last: int, per_document: int = 4, host: str = "h{}.org", commit: int = 1) -> None:
    """Insert pictures ``first`` to ``last`` in documents of several, each on a host of its own."""
    numbers = range(first, last)
    ids = [f"{n * 2654435761 % 2**32:08x}{n:024x}" for n in numbers]
    documents = [f"d{n // per_document}" for n in numbers]
    n = len(ids)
    same = {"shard": ["s"] * n, "commit": pa.array([commit] * n, pa.int64())}
    shape = {name: pa.array([100] * n, pa.int32()) for name in ("width", "height")}
    urls = [f"https://{host.format(document)}/{n}.jpg" for n, document in zip(numbers, documents, strict=True)]
    occurrences = {"image_id": [f"i{n}" for n in numbers], "document_id": documents, "url": urls, "sha256": ids}
    position = pa.array([n % per_document for n in numbers], pa.int32())
    lake.insert("images", pa.table(occurrences | shape | same | {"position": position}))
    lake.insert("image_content", pa.table({"sha256": ids} | shape | same))
    brightness = {"brightness": [0.5] * n, "scorer": ["q"] * n}
    lake.insert("image_quality", pa.table({"sha256": ids} | brightness | same))


def sha(n: int) -> str:
    return f"{n * 2654435761 % 2**32:08x}{n:024x}"


def published(lake: Lake, commit: int = 5, **more) -> Published:
    plan = plan_of(**more)
    cut(lake, plan)
    return publish(lake, plan, "run", None, lambda: commit, components)


def splits(lake: Lake, version: int, column: str = "split") -> dict[str, str]:
    return dict(lake.query(f"SELECT sha256, {column} FROM pairs WHERE dataset = 'divided' AND version = {version}"))


def test_documents_stay_whole_and_shares_hold(lake: Lake):
    add(lake, 0, 400)
    assert published(lake, splits=SPLITS).notes == ()
    of = splits(lake, 1)
    assert {name: list(of.values()).count(name) for name in SPLITS} == {"train": 320, "val": 40, "test": 40}
    assert all(len({of[sha(n)] for n in range(first, first + 4)}) == 1 for first in range(0, 400, 4))
    assert is_as_published(lake, find(lake, "divided"))
    assert not published(lake, splits=SPLITS).is_new
