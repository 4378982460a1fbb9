"""Splits and sizes of published pairs: groups stay together, pairs keep their split, and sizes are nested."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.cut.splits import divide
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe, validate
from pairmill.catalog.terms.error import BadRecipe
from pairmill.catalog.upkeep.amended_versions import is_as_published
from pairmill.catalog.upkeep.damages import find_leaks
from pairmill.ops.whole.components import components
from tests.worlds.shared import opened_new

SPLITS = {"train": 0.8, "val": 0.1, "test": 0.1}
TABLES = ("images", "image_content", "image_quality", "image_groups", "pairs", "decisions", "funnel", "datasets",
          "duplicate_edges", "scorers")  # fmt: skip


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
    documents = [f"d{first}-{n // per_document}" for n in numbers]
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


@pytest.mark.slow
def test_pairs_keep_their_split_and_new_ones_join_their_group(lake: Lake):
    add(lake, 0, 400)
    published(lake, splits=SPLITS)
    before = splits(lake, 1)
    add(lake, 400, 600, per_document=10)
    lake.execute("UPDATE images SET document_id = 'd0-1' WHERE image_id = 'i400'")
    published(lake, 6, splits=SPLITS, split_by=["documents"])
    after = splits(lake, 2)
    assert {key: after[key] for key in before} == before
    assert after[sha(400)] == before[sha(4)]
    assert all(50 < list(after.values()).count(name) <= 60 for name in ("val", "test"))


@pytest.mark.slow
def test_merged_groups_go_to_the_larger_split_and_every_copy_finds_its_group(lake: Lake):
    """500 near copies are planted; no group crosses, and nothing that was in train is held out."""
    add(lake, 0, 2000, per_document=1)
    published(lake, splits=SPLITS)
    before = splits(lake, 1)
    ends = np.random.default_rng(5).permutation(2000)[:1000]
    # Of a group over `max_group`, which is divided, the cut keeps several: edges connect them.
    copies = {"a": [sha(int(n)) for n in ends[::2]], "b": [sha(int(n)) for n in ends[1::2]]}
    lake.insert(
        "duplicate_edges", pa.table(copies | {"scorer": ["p"] * 500, "commit": pa.array([6] * 500, pa.int64())})
    )
    lake.execute("INSERT INTO scorers (digest, name, made_from) VALUES ('g', 'image_groups', ['p'])")
    found = published(lake, 7, splits=SPLITS)
    after = splits(lake, 2)
    moved = [key for key in before if after[key] != before[key]]
    assert len(after) == 2000 and f"{len(moved):,} pairs moved" in found.notes[0]
    assert all(after[a] == after[b] for a, b in zip(copies["a"], copies["b"], strict=True))
    assert moved and {before[key] for key in moved} == {"val", "test"}
    assert {after[key] for key in moved if before[key] == "test"} <= {"train", "val"}
    assert not list(find_leaks(lake))
    trained, copy = next(pair for pair in zip(copies["a"], copies["b"], strict=True) if after[pair[0]] == "train")
    of_both = f"SELECT unnest(['{trained}', '{copy}']) AS sha256, 'x' AS group_id, 'g' AS scorer, 6 AS \"commit\""
    lake.execute(f"INSERT INTO image_groups BY NAME {of_both}")  # linked in both ways, told once
    lake.execute(f"UPDATE pairs SET split = 'test' WHERE version = 2 AND sha256 = '{trained}'")
    (leak,) = find_leaks(lake)
    assert (leak.trouble, leak.rows) == ("leak", 2)
    assert leak.detail.startswith("1 groups of copies of divided@2 cross its splits, such as ")


def test_a_giant_group_goes_to_train_whole(lake: Lake):
    add(lake, 0, 200)
    lake.execute(
        "UPDATE images SET url = 'https://cdn.org/' || image_id WHERE CAST(substr(image_id, 2) AS INTEGER) < 120"
    )
    found = published(lake, splits=SPLITS)
    of = splits(lake, 1)
    assert {of[sha(n)] for n in range(120)} == {"train"}
    assert found.notes == (
        "splits: too large for any split but 'train', which gets it: one group of 120 of 200 pairs; `split_by` says "
        "what connects pairs",
    )


def test_a_split_that_would_be_empty_is_refused_with_the_remedy(lake: Lake):
    add(lake, 0, 40, host="one.org")
    with pytest.raises(BadRecipe, match=r"'val' would get no pair: .*1 groups.*`split_by: "):
        published(lake, splits=SPLITS)
    with pytest.raises(BadRecipe, match="is less than one; give it a larger share"):
        published(lake, splits={"train": 0.99, "test": 0.01})
    assert published(lake, splits=SPLITS, split_by=["documents"]).n_pairs == 40


@pytest.mark.slow
def test_sizes_are_nested_and_hold_the_other_splits_whole(lake: Lake):
    add(lake, 0, 400)
    published(lake, sizes={"nano": 10, "lite": 0.25, "full": 1})
    counts = list(splits(lake, 1, "size").values())
    assert [counts.count(name) for name in ("nano", "lite", "full")] == [10, 90, 300]
    published(lake, 6, sizes=["nano", "lite", "full"], splits=SPLITS)
    of, size = splits(lake, 2), splits(lake, 2, "size")
    assert {size[key] for key, split in of.items() if split != "train"} == {"nano"}
    assert [sum(of[key] == "train" and size[key] == name for key in of) for name in ("nano", "lite", "full")] == [
        3,
        29,
        288,
    ]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"splits": {"train": 0.9, "test": 0.2}}, "the shares sum to 1.1, not to 1"),
        ({"splits": {"train": 1}}, "there is one split"),
        ({"splits": {"train": 0.9, "Test": 0.1}}, "is no name"),
        ({"splits": {"train": 1.5, "test": -0.5}}, "too large"),
        ({"split_by": ["documents"]}, "add `splits`"),
        ({"splits": SPLITS, "split_by": ["document"]}, "is not a choice"),
        ({"splits": SPLITS, "duplicates": "none"}, "`split_by: \\[documents, hosts\\]`"),
        ({"sizes": {"nano": 1.5}}, "a whole number of pairs"),
        ({"sizes": ["nano", "nano"]}, "two sizes have the name 'nano'"),
    ],
)  # fmt: skip
def test_settings_that_cannot_hold_are_refused(settings: dict, said: str):
    with pytest.raises(BadRecipe, match=said):
        recipe_of(**settings)


def test_absent_settings_keep_the_recipe_as_it_was():
    assert not {"splits", "split_by", "sizes"} & recipe_of().record().keys()


def test_groups_fill_splits_up_to_their_share_and_small_ones_first():
    sizes = np.array([9, *[1] * 91])
    group = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
    draw = np.arange(100, dtype=np.uint64)
    found = divide(group, np.full(100, -1), np.ones(100, bool), draw, np.array([0.9, 0.1]))
    assert np.bincount(found.split).tolist() == [90, 10] and not found.split[:9].any()
