"""Rules on what was generated bite before the cap, on every status too."""

import json
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.cut import publication
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import validate
from pairmill.tasks.release.export.export import export
from tests.worlds.published import IMAGE_RULES, insert_fused, plan_of, published

STATUS_OF_FUSED = ("synthetic_text", "synthetic_status")
STATUSES = ("ok", "cut_off", "repeating", "empty")


def plan(rule: str) -> Plan:
    base, _ = plan_of(3, IMAGE_RULES, captions=True, tags=True)
    rules = [*base.recipe.model_dump()["images"], {"name": "whole_text", "keep": rule}]
    content = base.recipe.model_dump() | {"images": rules, "fuse": {}}
    return compile_plan(validate(content, "small"), {**base.scorers, "synthetic": "fused"})


@pytest.mark.slow
def test_a_generated_text_is_published_when_it_is_whole_and_else_its_status_alone(tmp_path: Path):
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        asked = plan("synthetic_tokens is not null")
        statuses = [STATUSES[n % 4] for n in range(99)]
        for table, status in (("captions", "status"), ("synthetic", "synthetic_status")):
            asked = asked.with_scorer(table, "made")
            text = "text" if table == "captions" else "synthetic_text"
            cut(lake, asked)
            kept = [sha for (sha,) in lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = '' ORDER BY ALL")]
            rows = {text: [f"{table} {sha}" for sha in kept], "n_tokens": pa.array([10] * len(kept), pa.int32())}
            rows[status] = statuses[: len(kept)]
            if table == "synthetic":
                insert_fused(lake, asked, **rows)
                continue
            rows |= {"sha256": kept, "shard": ["shard-0"] * len(kept), "scorer": ["made"] * len(kept)}
            lake.insert(table, pa.table({**rows, "commit": pa.array([9] * len(kept), pa.int64())}))
        cut(lake, asked)
        version = publication.publish(lake, asked, "run", None, lambda: 10).version
        columns = "caption, caption_status, syn_text, synthetic_status"
        pairs = lake.query(f"SELECT sha256, {columns} FROM pairs WHERE version = ? ORDER BY sha256", (version,))
        withheld = publication.count_withheld(lake)
        export(lake, "small", version, str(tmp_path / "tables"), "parquet")
        export(lake, "small", version, str(tmp_path / "tars"))
    whole = {sha: status == "ok" for sha, _, status, _, _ in pairs}
    assert [row[2] for row in pairs] == [row[4] for row in pairs] == [STATUSES[n % 4] for n in range(len(kept))]
    for sha, caption, _, fused, _ in pairs:
        assert (caption, fused) == ((f"captions {sha}", f"synthetic {sha}") if whole[sha] else (None, None))
    assert sum(withheld["captions"].values()) == sum(withheld["fused texts"].values()) == [*whole.values()].count(False)
    (table,) = (tmp_path / "tables").glob("*.parquet")
    (tar,) = (tmp_path / "tars").glob("*.tar")
    with tarfile.open(tar) as members:
        texts = [members.extractfile(each) for each in members if each.name.endswith(".json")]
        samples = [json.load(text) for text in texts if text]
    for exported in (pq.read_table(table).to_pylist(), samples):
        found = sorted((row["sha256"], *(row[name] for name in columns.split(", "))) for row in exported)
        assert found == pairs


@pytest.mark.slow
def test_a_rule_on_the_status_of_a_fused_text_drops_by_its_name_and_shows_the_value(tmp_path: Path):
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        asked = plan("synthetic_status = 'ok' and synthetic_tokens <= 100")
        statuses = [STATUSES[n % 4] for n in range(99)]
        kept = insert_fused(lake, asked, synthetic_status=statuses, n_tokens=pa.array([10] * 99, pa.int32()))
        cut(lake, asked)
        fallen = dict(
            lake.query("SELECT sha256, dropped_value FROM cut_images WHERE dropped_by = 'whole_text' ORDER BY ALL")
        )
        assert fallen.keys() == {sha for n, sha in enumerate(kept) if n % 4} and len(kept) >= 4
        assert all("synthetic_status=" in value for value in fallen.values())
        others = lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = '' ORDER BY ALL")
        assert {sha for n, sha in enumerate(kept) if n % 4 == 0} < {sha for (sha,) in others}
