"""What the log of a step says: how much of what it did, in words."""

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write.runs import last_commit
from pairmill.flows.with_prefect.step_as_task import added_since, step_text
from tests.worlds.line import curated_lake, rows


def test_the_log_of_an_ingest_counts_what_stands_in_the_lake() -> None:
    with create_or_open(curated_lake(), read_only=True) as lake:
        [(run,)] = lake.query("SELECT DISTINCT run_id FROM commits")
        added = added_since(lake, run, 0)
        after = added_since(lake, run, last_commit(lake, run))
    for table in ("documents", "images", "sentences"):
        assert [(added[table],)] == rows(curated_lake(), f"SELECT count(*) FROM {table}")
    text = step_text("ingest", added, {("ingest", ""): 26}, 4.2)
    assert f"{added['documents']:,} documents, {added['images']:,} images" in text and text.endswith(", 4.2 s")
    assert after == {} and step_text("ingest", after, {}, 4.2, is_idle=True) == "ingest: nothing was pending"
    assert step_text("publish", {}, {}, 4.2) == "publish: 4.2 s"


def test_a_stage_is_named_only_beside_another() -> None:
    one, two = {("clip", "pictures"): 1}, {("clip", "pictures"): 2000, ("decode", "pictures"): 1}
    assert step_text("score_images", {"shards": 1}, one, 7.04) == "score_images: 1 shard, 1 picture, 7.0 s"
    assert step_text("score_images", {}, two, 7200) == "score_images: clip 2,000 pictures, decode 1 picture, 2 h 0 min"


def test_what_failed_in_a_step_is_told_after_what_it_did() -> None:
    said = step_text("score_images", {"shards": 1, "quarantine": 3}, {("clip", "pictures"): 9}, 1.0)
    assert said == "score_images: 1 shard, 9 pictures, 3 in quarantine, 1.0 s"
    with create_or_open(curated_lake(), read_only=True) as lake:
        [(run,)] = lake.query("SELECT DISTINCT run_id FROM commits")
        failed = added_since(lake, run, 0).get("quarantine", 0)
    assert [(failed,)] == rows(curated_lake(), "SELECT count(*) FROM quarantine")
