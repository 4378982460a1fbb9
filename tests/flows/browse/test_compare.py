"""Two versions are compared by cause, with the numbers that the lake's own pairs and decisions give."""

from pathlib import Path

import pytest

from tests.worlds.browsed import Pages, browsed, ids, rows, text
from tests.worlds.published import published


@pytest.mark.slow
def test_pairs_gained_and_lost_are_counted_by_cause_and_shown(tmp_path: Path):
    lake = tmp_path / "lake"
    published(lake, pictures=18, cap=2, clusters=3)
    with_rule = ({"name": "short_side", "keep": "least(width, height) >= 70"},)
    published(lake, pictures=18, cap=4, clusters=3, image_rules=with_rule)
    of = "SELECT image_id FROM pairs WHERE version = {}"
    gained = {row[0] for row in rows(lake, f"{of.format(2)} EXCEPT {of.format(1)}")}
    lost = {row[0] for row in rows(lake, f"{of.format(1)} EXCEPT {of.format(2)}")}
    with browsed(lake) as pages:
        page = pages.page("/compare")
        galleries = page.xpath("//section//p/a/@href")
        behind = [ids(pages.gallery(address)) for address in galleries]
        backwards = pages.page("/compare?dataset=small@1&before=small@2")
        narrowed = ids(pages.page(galleries[0] + "&where=width >= 0 AND height < 0"))
    assert f"{len(lost)} gained, {len(gained)} lost" in text(backwards)
    counted = {"Gained": 0, "Lost": 0, "Changed": 0}
    shown: dict[str, set[str]] = {name: set() for name in counted}
    for section in page.find_class("changed"):
        name = text(section.find("h2")).partition(":")[0]
        counted[name] += int(text(section.find_class("n")[0]))
        shown[name] |= {href[6:38] for href in section.xpath(".//a[@class='item']/@href")}
    assert (counted["Gained"], counted["Lost"]) == (len(gained), len(lost)) and gained
    assert shown["Gained"] == gained and shown["Lost"] == lost
    assert gained | lost <= {each for found in behind for each in found} and not narrowed
    assert [len(found) for found in behind] == [int(text(each)) for each in page.find_class("n")]


def test_a_dataset_of_one_version_says_that_there_is_nothing_to_compare(small_pages: Pages):
    assert "Nothing to compare yet" in text(small_pages.page("/compare"))
