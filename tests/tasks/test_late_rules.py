"""Rules on what was generated bite after the cap, on every status too."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from catalog.cut.cut import cut, cut_after_captions
from catalog.lake.opening import create_or_open
from catalog.recipe.plan import Plan, compile_plan
from catalog.recipe.recipe import validated
from tests.tasks.published import IMAGE_RULES, plan_of, published

STATUSES = ("ok", "cut_off", "repeating", "empty")


def plan(rule: str) -> Plan:
    base, _ = plan_of(3, IMAGE_RULES, captions=True, tags=True)
    rules = [*base.recipe.model_dump()["images"], {"name": "whole_text", "keep": rule}]
    content = base.recipe.model_dump() | {"images": rules, "fuse": {}}
    return compile_plan(validated(content, "small"), {**base.scorers, "synthetic": "fused"})


def test_a_rule_on_the_status_of_a_fused_text_drops_by_its_name_and_shows_the_value(tmp_path: Path):
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        asked = plan("synthetic_status = 'ok' and synthetic_tokens <= 100")
        cut(lake, asked)
        kept = [sha for (sha,) in lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = '' ORDER BY ALL")]
        rows = {
            "sha256": kept,
            "shard": ["shard-0"] * len(kept),
            "scorer": ["fused"] * len(kept),
            "synthetic_status": [STATUSES[n % 4] for n in range(len(kept))],
            "n_tokens": pa.array([10] * len(kept), pa.int32()),
        }
        lake.insert("synthetic", pa.table({**rows, "commit": pa.array([9] * len(kept), pa.int64())}))
        cut_after_captions(lake, asked)
        fallen = dict(
            lake.query("SELECT sha256, dropped_value FROM cut_images WHERE dropped_by = 'whole_text' ORDER BY ALL")
        )
        assert fallen.keys() == {sha for n, sha in enumerate(kept) if n % 4} and len(kept) >= 4
        assert all("synthetic_status=" in value for value in fallen.values())
        cut(lake, replace(asked, image_checks=asked.image_checks[:-1]))
        assert len(kept) == lake.query("SELECT count(*) FROM cut_images WHERE dropped_by = ''")[0][0]
