"""Work lists and current scores against what is said in a line of Python, on random lakes."""

from itertools import chain
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import worklist
from pairmill.catalog.pending.eligible import current_scores, sentence_rows, surviving_sentences
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import merge_small_items, pending_images, pending_sentences, rounds
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.score import Stage
from tests.examples import examples

SCORERS = {"image_quality": "q", "image_embedding": "e", "sentence_quality": "s", "image_similarity": "i"}
SHARDS = 3
SCORE = st.sampled_from([None, "unscored", 5.0, 50.0])
PICTURE = st.tuples(SCORE, st.booleans(), st.sampled_from([50, 500]))
SENTENCE = st.tuples(st.sampled_from([None, 1, 9]), st.integers(1, 4), st.booleans())
QUICK = examples(6, suppress_health_check=[HealthCheck.function_scoped_fixture])


def plan() -> Plan:
    recipe = {
        "name": "small",
        "models": {"clip": "open_clip:A/b"},
        "images": [{"name": "side", "keep": "width >= 100"}, {"name": "sharp", "keep": "sharpness >= 10"}],
        "sentences": [
            {"name": "length", "keep": "n_words >= 3"},
            {"name": "repeats", "keep": "repeats <= 2"},
            {"name": "wording", "keep": "text <> 's03'"},
        ],
    }
    return compile_plan(Recipe.model_validate(recipe), SCORERS)


def insert(lake: Lake, table: str, rows: list[dict[str, Any]], schema: pa.Schema) -> None:
    lake.insert(table, pa.Table.from_pylist([{"commit": 1, **row} for row in rows], schema))


def columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema({"commit": pa.int64(), **types})


def partition(lake: Lake, table: str, shard: str, rows: int, name: str = "") -> None:
    sql = 'INSERT INTO partitions ("table", partition_id, shard, scorer, rows, path) VALUES (?, ?, ?, ?, ?, ?)'
    lake.execute(sql, (table, table + shard + name, shard, SCORERS.get(table, ""), rows, f"{shard}.parquet"))


def fresh(lake: Lake, *tables: str) -> None:
    for table in (*tables, "partitions"):
        lake.execute(f"DELETE FROM {table}")


def shard_of(n: int) -> str:
    return f"shard{n % SHARDS}"


@given(sizes=st.lists(st.integers(1, 9), max_size=20))
def test_rounds_hold_every_shard_once_in_order_and_no_more_rows_than_they_may(sizes: list[int]):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worklist, "ROUND", 8)
        found = list(rounds((str(n), size) for n, size in enumerate(sizes)))
    assert list(chain.from_iterable(found)) == [str(n) for n in range(len(sizes))]
    assert len(found) >= 1
    assert all(sum(sizes[int(shard)] for shard in run) <= 8 or len(run) == 1 for run in found)


@given(sizes=st.lists(st.integers(1, 9), max_size=20), most=st.integers(0, 20))
def test_grouped_items_hold_every_key_and_file_once_in_order(sizes: list[int], most: int):
    items = [WorkItem(str(n), tuple(f"{n}.{i}" for i in range(size)), (f"{n}.p",)) for n, size in enumerate(sizes)]
    found = merge_small_items(items, most)
    assert [key for item in found for key in item.keys] == [key for item in items for key in item.keys]
    assert [path for item in found for path in item.paths] == [path for item in items for path in item.paths]
    assert len({item.shard for item in found}) == len(found)
    assert all(len(item.keys) <= most or item in items for item in found)


@given(pictures=st.lists(PICTURE, max_size=12))
@QUICK
def test_pictures_are_pending_that_pass_so_far_and_lack_a_score(lake: Lake, pictures: list):
    fresh(lake, "images", "image_content", "image_quality", "image_embedding")
    rows = [{"sha256": f"p{n:02}", "shard": shard_of(n), "width": width} for n, (*_, width) in enumerate(pictures)]
    schema = columns(sha256=pa.string(), shard=pa.string(), width=pa.int32())
    insert(lake, "image_content", rows, schema)
    shown = [{**row, "image_id": f"{row['sha256']}{copy}"} for row in rows for copy in "ab"]
    insert(lake, "images", shown, schema.append(pa.field("image_id", pa.string())))
    scored = [n for n, (score, *_) in enumerate(pictures) if score != "unscored"]
    embedded = [n for n, (_, done, _) in enumerate(pictures) if done]
    key = {"sha256": pa.string(), "shard": pa.string(), "scorer": pa.string()}
    quality = [{**rows[n], "scorer": "q", "sharpness": pictures[n][0], "brightness": pictures[n][0]} for n in scored]
    insert(lake, "image_quality", quality, columns(**key, sharpness=pa.float64(), brightness=pa.float64()))
    insert(lake, "image_embedding", [{**rows[n], "scorer": "e"} for n in embedded], columns(**key))
    for number in range(SHARDS):
        partition(lake, "payloads", shard_of(number), 1)
        partition(lake, "image_embedding", shard_of(number), sum(n % SHARDS == number for n in embedded))
    for stage in (Stage.PIXELS, Stage.CLIP):
        passed = [n for n, (score, _, width) in enumerate(pictures)
                  if width >= 100 and (stage is Stage.PIXELS or score not in (None, "unscored", 5.0))]  # fmt: skip
        expected = {f"p{n:02}" for n in passed if n not in embedded}
        items = list(chain.from_iterable(pending_images(lake, plan(), ("image_embedding",), stage)))
        assert {key for item in items for key in item.keys} == expected
        assert all(key in item.keys for item in items for key in expected if shard_of(int(key[1:])) == item.shard)


def test_a_pass_that_fills_no_table_has_no_work(lake: Lake):
    """A recipe without models has none for pictures that pass a rule on pixels."""
    assert list(pending_images(lake, plan(), (), Stage.CLIP)) == [[]]


@given(sentences=st.lists(SENTENCE, max_size=10))
@QUICK
def test_sentences_that_survive_are_those_that_no_rule_drops(lake: Lake, sentences: list):
    fresh(lake, "sentences", "sentence_content", "sentence_quality")
    rows = [{"content": f"s{n:02}", "text": f"s{n:02}", "shard": shard_of(n)} for n in range(len(sentences))]
    text = {"content": pa.string(), "text": pa.string(), "shard": pa.string()}
    insert(lake, "sentence_content", rows, columns(**text))
    for number in range(SHARDS):
        partition(lake, "sentences", shard_of(number), 1)
    said = [rows[n] for n, (_, repeats, _) in enumerate(sentences) for _ in range(repeats)]
    insert(lake, "sentences", said, columns(**text))
    quality = [{**rows[n], "scorer": "s", "n_words": words} for n, (words, _, scored) in enumerate(sentences) if scored]
    schema = columns(content=pa.string(), shard=pa.string(), scorer=pa.string(), n_words=pa.int32())
    insert(lake, "sentence_quality", quality, schema)
    ruled = lake.query(f"SELECT content FROM ({sentence_rows(plan(), Stage.CAPTION)}) WHERE dropped_by = ''")
    lake.execute("CREATE OR REPLACE TEMP TABLE asked AS SELECT content FROM sentence_content")
    survivors = lake.query(surviving_sentences(plan(), plan().sentence_checks, "asked"))
    expected = {f"s{n:02}" for n, (words, repeats, scored) in enumerate(sentences)
                if scored and words == 9 and repeats <= 2 and n != 3}  # fmt: skip
    assert {row[0] for row in ruled} == {row[0] for row in survivors} == expected
    items = list(chain.from_iterable(pending_sentences(lake, plan(), ("sentence_embedding",), Stage.CLIP)))
    assert {key for item in items for key in item.keys} == expected


@given(commits=st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), max_size=4))
@QUICK
def test_of_a_score_made_again_the_newest_counts(lake: Lake, commits: list[list[int]]):
    fresh(lake, "image_similarity")
    newest = {}
    for number, keys in enumerate(commits, 1):
        newest |= {f"p{n}": number for n in keys}
        for shard in range(SHARDS):
            here = [n for n in keys if n % SHARDS == shard]
            rows = [{"sha256": f"p{n}", "shard": shard_of(n), "scorer": "i", "commit": number} for n in here]
            insert(lake, "image_similarity", rows,
                   columns(sha256=pa.string(), shard=pa.string(), scorer=pa.string()))  # fmt: skip
            partition(lake, "image_similarity", shard_of(shard), len(here), str(number))
    found = lake.query(f"SELECT sha256, commit FROM {current_scores(plan(), 'image_similarity', 'sha256')}")
    assert sorted(found) == sorted(newest.items())
