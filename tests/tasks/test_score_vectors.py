"""A score made of CLIP's vectors: one value a vector, NULL where there is none, and only what is pending."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_vectors
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.score import Column, Score, Stage
from pairmill.catalog.terms.scores import OWN
from pairmill.tasks.measure.scoring_job import ScoreVectors
from pairmill.tasks.run.items.rows import to_blobs
from pairmill.tasks.run.place.identity import Bound
from tests.worlds.shared import opened_new

HEAD = Score("first", "image", (Column("first_value", "DOUBLE", "the first dimension"),), Stage.CLIP, ("image_vector",),
             "tests.tasks.test_score_vectors:First")  # fmt: skip


@dataclass(frozen=True)
class First:
    version: int = 1

    def __call__(self, batch):
        return batch | {"first_value": batch["image_vector"][:, 0]}


def vectors(path: Path) -> Path:
    blobs = to_blobs(np.array([[0.25, 1], [0.5, 0]], np.float32)).to_pylist()
    columns = {"sha256": ["a", "b", "c"], "image_vector": [blobs[0], None, blobs[1]], "commit": [1] * 3}
    pq.write_table(pa.table(columns), path)
    return path


def test_each_vector_has_its_value_and_what_has_none_is_null(tmp_path: Path):
    item = WorkItem("shard", ("a", "b", "c"), (str(vectors(tmp_path / "v.parquet")),), ("first",))
    (part,) = ScoreVectors(Bound(HEAD, First(), "f"))(item)
    assert part.rows.to_pylist() == [
        {"sha256": "a", "first_value": 0.25},
        {"sha256": "b", "first_value": None},
        {"sha256": "c", "first_value": 0.5},
    ]


def test_what_lacks_a_row_of_this_scorer_is_pending(tmp_path: Path):
    recipe = Recipe.model_validate({"name": "r", "models": {"clip": "open_clip:A/b"}, "scores": {"first": {}}})
    plan = compile_plan(recipe, {"image_embedding": "e", "first": "f"}, (*OWN, HEAD))
    with opened_new(tmp_path / "lake") as lake:
        lake.execute(
            "CREATE TABLE first (sha256 VARCHAR, shard VARCHAR, scorer VARCHAR, commit BIGINT, first_value DOUBLE)"
        )
        for scorer, keys in (("e", ["a", "b"]), ("other", ["c"])):
            rows = {"sha256": keys, "shard": ["s"] * len(keys), "scorer": [scorer] * len(keys)}
            lake.insert("image_embedding", pa.table(rows | {"commit": pa.array([1] * len(keys), pa.int64())}))
        file = {
            "table": ["image_embedding"],
            "shard": ["s"],
            "scorer": ["e"],
            "path": ["v"],
            "rows": [2],
            "commit": [1],
        }
        lake.insert("partitions", pa.table(file))
        assert keys_of(lake, plan) == ["a", "b"]
        lake.execute("INSERT INTO first VALUES ('a', 's', 'f', 2, 0.5), ('b', 's', 'older', 2, 0.5)")
        assert keys_of(lake, plan) == ["b"]


def keys_of(lake: Lake, plan) -> list[str]:
    return [key for items in pending_vectors(lake, plan, HEAD) for item in items for key in item.keys]
