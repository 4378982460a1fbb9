"""The report shows each picture near to a benchmark's beside that picture, some of each set, with totals."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from lxml import html
from PIL import Image

from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.pair_sample import SHOWN, SetHits, contamination_hits
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.flows.api.report_content import with_benchmark_pictures
from pairmill.flows.pages.renderer import render
from pairmill.flows.run.settings import load_recipe
from tests.worlds.shared import opened_new

N = 20
BLANK = Dataset("blank", 1, "{}", 1, "", False, 0, None, "", datetime.now(UTC))


def test_hits_stand_beside_their_set_s_picture_the_nearest_first(tmp_path: Path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (40, 30), "red").save(tmp_path / name / "red.png")
    recipe = load_recipe("demo", {"contamination": f"{{sets: [{tmp_path}/first, {tmp_path}/second]}}"})
    plan = replace(compile_plan(recipe), scorers={"benchmark_hash": "h", "benchmark_vector": "v"})
    with opened_new(tmp_path / "lake") as lake:
        number = f"FROM range({N}) t(n)"
        lake.execute(f"INSERT INTO images BY NAME SELECT 'i' || n AS image_id, 's' || n AS sha256 {number}")
        lake.execute(f"INSERT INTO image_content BY NAME SELECT 's' || n AS sha256, 'shard' AS shard {number}")
        lake.execute(
            "INSERT INTO decisions BY NAME SELECT 'blank' AS dataset, 1 AS version, 'i' || n AS item_id, 'image' AS "
            f"kind, if(n < {N - 1}, 'contamination', '') AS dropped_by {number}"
        )
        # The first half are copies of the first set by hash, the others near to the second by vector.
        lake.execute(
            "INSERT INTO benchmark_hash BY NAME SELECT 's' || n AS sha256, 'h' AS scorer, if(n < 10, 4 - n % 3, 30) AS "
            f"benchmark_bits, '{tmp_path}/first/red.png' AS benchmark_copy {number}"
        )
        lake.execute(
            "INSERT INTO benchmark_vector BY NAME SELECT 's' || n AS sha256, 'v' AS scorer, 0.95 + n / 1000 AS "
            f"benchmark_cosine, '{tmp_path}/second/gone.png' AS benchmark_near {number}"
        )
        first, second = with_benchmark_pictures(contamination_hits(lake, BLANK, plan))
    assert (first.n, second.n, len(first.hits), len(second.hits)) == (10, N - 1 - 10, SHOWN, SHOWN)
    assert [hit["bits"] for hit in first.hits] == sorted(hit["bits"] for hit in first.hits)
    assert first.hits[0]["benchmark"]["picture"].startswith("data:image/webp")
    assert second.hits[0]["benchmark"] == {"name": "gone.png", "picture": "", "lost": "not on this machine"}
    assert second.hits[0]["cosine"] == pytest.approx(0.95 + (N - 2) / 1000)


def test_the_page_puts_the_two_pictures_side_by_side():
    hit = {"image_id": "i1", "picture": "data:a", "lost": "", "bits": 3, "cosine": 0.97}
    hit |= {"file": "/b/red.png", "benchmark": {"name": "red.png", "picture": "data:b", "lost": ""}}
    row = {"rule": "contamination", "n_dropped": 9, "n_in": 50, "asks": "", "is_sql": False}
    shown = render(
        "report_dropped.html.j2", funnels={"image": [row]}, dropped={}, near={}, distinct={}, is_sample=False,
        n_images=50, histograms={"image": {}, "sentence": {}},
        contaminated=[SetHits("/b", 9, [hit]), SetHits("/none", 0, [])],
    )  # fmt: skip
    [item] = html.fromstring(shown).find_class("pairwise")
    assert [picture.get("src") for picture in item.findall(".//img")] == ["data:a", "data:b"]
    assert "red.png: 3 of 64 bits differ, cosine 0.97" in " ".join(item.text_content().split())
    assert "/b: 9 pictures near to one of its; the nearest 1" in shown and "/none" not in shown
