"""A rule's page: what is drawn is what SQL counts, and a trial decides as a real cut with that rule."""

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from lxml import html

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.trial_cut import cut_plan, fates_by_both
from pairmill.catalog.queries.sql.sql_answer import sentence_decisions
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import apply_overrides, load, validate
from tests.worlds.browsed import Pages, rows, text


def rules(pages: Pages, dataset: str) -> html.HtmlElement:
    while "Reading the lake" in text(found := pages.page(f"/rules?dataset={dataset}")):
        time.sleep(0.05)
    return found


def test_a_histogram_counts_what_sql_counts_and_the_sample_is_of_this_version(pages: Pages, lake: Path):
    rule = rules(pages, "demo@1").get_element_by_id("rule-short_side")
    counts = [int(text(title).rpartition(": ")[2].replace(",", "")) for title in rule.findall(".//rect/title")]
    every = rows(lake, "SELECT least(width, height) FROM images")
    low, high = min(every)[0], max(every)[0]
    width = -(-(high - low + 1) // 60)  # whole numbers
    expected = [0] * -(-(high - low + 1) // width)
    for (value,) in every:
        expected[(value - low) // width] += 1
    assert counts == expected
    sample = json.loads(rule.get("data-sample"))
    kept = rows(lake, "SELECT count(*) FROM decisions WHERE dataset = 'demo' AND version = 1 AND dropped_by = ''")
    assert len(sample) == len(every) and sum(each[2] for each in sample) == kept[0][0]


def test_pictures_beside_a_threshold_are_the_nearest_on_either_side(pages: Pages, lake: Path):
    rule = rules(pages, "demo@1").get_element_by_id("rule-short_side")
    edge = float(rule.xpath(".//input[@data-side='low']/@value")[0])
    nearest = (
        "SELECT image_id FROM images WHERE least(width, height) {} ORDER BY least(width, height) {}, image_id LIMIT 8"
    )
    strips = [[href[6:38] for href in strip.xpath(".//a/@href")] for strip in rule.find_class("strip")]
    below, above = (
        [row[0] for row in rows(lake, nearest.format(*how))] for how in ((f"< {edge}", "DESC"), (f">= {edge}", "ASC"))
    )
    assert [ids for ids in (below, above) if ids] == strips and above


def test_a_rule_on_sentences_shows_their_values_and_the_texts_beside_its_threshold(pages: Pages, lake: Path):
    rule = rules(pages, "demo@1").get_element_by_id("sentence-length")
    sample = json.loads(rule.get("data-sample"))
    known = dict(rows(lake, "SELECT content, text FROM sentence_content ORDER BY content"))
    assert len(sample) == min(len(known), 2000)
    with create_or_open(lake, read_only=True) as opened:
        decided = sentence_decisions(opened, [datasets.find(opened, "demo@1")])
        passing = f"SELECT item_id FROM ({decided}) WHERE dropped_by IN ('', 'duplicate')"
        kept = {content for (content,) in opened.query(passing)}
    assert sum(each[2] for each in sample) == len(kept & set(list(known)[:2000]))
    assert f"of {len(known):,} sampled sentences" in text(rule)
    shown = [" ".join(line.text_content().split()) for line in rule.xpath(".//ul[@class='near']/li")]
    assert shown and all(any(line.endswith(" ".join(each[:300].split())) for each in known.values()) for line in shown)


@pytest.mark.slow
def test_a_trial_equals_the_cut_of_a_recipe_with_that_rule(small: Path):
    with pm.open(small) as opened:
        same = opened.try_recut("small", {"images.short_side.keep": "least(width, height) >= 40"})
        assert not same.moved and same.kept == same.kept_before == 9
        found = opened.try_recut("small", {"images.short_side.keep": "least(width, height) >= 85"})
    with create_or_open(small, read_only=True) as lake:
        plan = cut_plan(lake, datasets.find(lake, "small"))
        content = plan.recipe.record() | {"images": [{"name": "short_side", "keep": "least(width, height) >= 85"}]}
        whole = fates_by_both(lake, plan, compile_plan(validate(content, "small"), plan.scorers))
        assert found.moved == [each for each in whole if each[0] != each[1]] != []
        assert found.kept == sum(n for _, fate, n in whole if not fate)
        assert found.images == lake.query("SELECT count(*) FROM images")[0][0]


@pytest.mark.slow
def test_the_cut_of_an_unchanged_rule_is_that_of_the_published_version(lake: Path):
    with create_or_open(lake, read_only=True) as opened:
        plan = cut_plan(opened, datasets.find(opened, "demo"))
        found = fates_by_both(opened, plan, plan)
        decided = opened.query("SELECT dropped_by, count(*) FROM decisions GROUP BY 1 ORDER BY 1")
        assert opened.query("SELECT dropped_by, count(*) FROM cut_images GROUP BY 1 ORDER BY 1") == decided
        assert all(was == now for was, now, _ in found)
        assert sum(n for was, _, n in found if not was) == opened.query("SELECT count(*) FROM pairs")[0][0]


def test_a_tried_rule_is_shown_with_its_numbers_and_as_a_setting(small_pages: Pages, small: Path):
    rules(small_pages, "small@1")
    keep = "least(width, height) >= 85"
    page = small_pages.page(f"/rules/try?dataset=small@1&kind=image&rule=short_side&keep={quote(keep)}")
    assert f"--set 'images.short_side.keep={keep}'" in text(page)
    kept = rows(small, "SELECT count(*) FROM pairs")[0][0]
    assert f"before {kept}" in text(page.find_class("exact")[0])


@pytest.mark.parametrize(
    "query", ["rule=nosuch&keep=true", "rule=short_side&keep=width", "rule=short_side&keep=nosuch>1",
              "rule=short_side&keep=caption='x'"],
)  # fmt: skip
def test_a_trial_of_what_is_no_rule_says_why(small_pages: Pages, query: str):
    page = small_pages.page(f"/rules/try?dataset=small@1&kind=image&{query}")
    assert len(text(page if "fault" in (page.get("class") or "") else page.find_class("fault")[0])) > 20


def test_a_tried_rule_is_saved_as_the_recipe_that_the_setting_gives(small_pages: Pages, small: Path, tmp_path: Path):
    keep = "least(width, height) >= 85 AND format <> 'it''s'"
    query = f"dataset=small@1&kind=image&rule=short_side&keep={quote(keep)}"
    page = small_pages.page(f"/rules/try?{query}")
    answer = small_pages.client.get(page.xpath("//a[@download]/@href")[0])
    assert 'filename="small.yaml"' in answer.headers["content-disposition"]
    (tmp_path / "small.yaml").write_text(answer.text)
    with create_or_open(small, read_only=True) as lake:
        recipe = cut_plan(lake, datasets.find(lake, "small")).recipe
    assert load(tmp_path / "small.yaml") == apply_overrides(recipe, {"images.short_side.keep": f'"{keep}"'}) != recipe
    assert small_pages.client.get(f"/rules/recipe?{query.replace('short_side', 'no!')}").status_code == 400
