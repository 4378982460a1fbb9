"""The report in a real browser: search, order, pages, keys, no scripts, paper, and hostile texts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.tasks.release.report.html_report import write_report
from tests.worlds.browsed import rows
from tests.worlds.chromium import Tab, tab
from tests.worlds.hostile_texts import hostile_lake

pytestmark = pytest.mark.browser
VISIBLE = "[...document.querySelectorAll('#pairs .pair')].filter((each) => each.offsetParent)"
SAID = "document.querySelector('.pages output').textContent"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Tab]:
    with tab() as opened:
        yield opened


@pytest.fixture(scope="module")
def report(lake: Path) -> str:
    return written(lake, "demo")


def written(lake: Path, name: str) -> str:
    with create_or_open(lake, read_only=True) as opened:
        return Path(write_report(opened, name, 1, str(lake.parent / f"{name}.html"))).as_uri()


@pytest.fixture
def shown(chromium: Tab, report: str) -> Tab:
    chromium.events.clear()
    chromium.look(1280)
    chromium.open(report)
    return chromium


def texts(opened: Tab) -> list[str]:
    return opened.run(f"{VISIBLE}.map((each) => each.textContent)")


def ask(opened: Tab, words: str) -> None:
    search = "document.querySelector('#pairs input')"
    opened.run(f"({search}.value = {json.dumps(words)}, {search}.dispatchEvent(new Event('input')), 1)")


def test_a_search_leaves_the_pairs_whose_texts_have_all_its_words(shown: Tab, lake: Path):
    text1 = rows(lake, "SELECT text1 FROM pairs WHERE version = 1 ORDER BY sha256(image_id || '0') LIMIT 1")[0][0]
    ask(shown, text1.upper())
    found = texts(shown)
    assert found and all(word in each.lower() for word in text1.lower().split() for each in found)
    assert len(found) == min(24, int(shown.run(SAID).partition(" found")[0]))  # a page has 24
    ask(shown, "no such words anywhere")
    assert texts(shown) == [] and shown.run(SAID) == "0 found, page 1 of 1"


def test_an_order_brings_the_least_like_pairs_first(shown: Tab, lake: Path):
    shown.run(
        "((s) => { s.value = 'similarity1 up'; s.dispatchEvent(new Event('change')); return 1; })"
        "(document.querySelector('#pairs select'))"
    )
    values = shown.run(f"{VISIBLE}.map((each) => parseFloat(each.dataset.similarity1))")
    least = rows(lake, "SELECT round(similarity1, 4) FROM pairs WHERE version = 1 ORDER BY 1 LIMIT 24")
    assert values == [value for (value,) in least]


def test_pages_show_each_pair_once(shown: Tab, lake: Path):
    n = min(360, rows(lake, "SELECT count(*) FROM pairs WHERE version = 1")[0][0])
    seen = shown.run(f"{VISIBLE}.map((each) => each.dataset.id)")
    while not shown.run("document.querySelector('.pages button:last-child').disabled"):
        shown.click(".pages button:last-child")
        seen += shown.run(f"{VISIBLE}.map((each) => each.dataset.id)")
    assert len(seen) == len(set(seen)) == n


def test_a_picture_is_enlarged_and_left_by_keys_alone(shown: Tab):
    first = "document.querySelector('#pairs .picture img')"
    shown.run(f"({first}.focus(), 1)")
    shown.press("Enter")
    assert shown.run(
        f"document.querySelector('dialog').open && document.querySelector('dialog img').src === {first}.src"
    )
    assert shown.run("document.querySelector('dialog .words').textContent").count("pairmill why ") == 1
    shown.press("ArrowRight")
    second = "document.querySelectorAll('#pairs .picture img')[1]"
    assert shown.run(f"document.querySelector('dialog img').src === {second}.src")
    shown.press("Escape")
    shown.until(f"!document.querySelector('dialog').open && document.activeElement === {second}")


def test_it_requests_nothing_and_fits_a_phone(shown: Tab):
    assert shown.requested() and not [a for a in shown.requested() if not a.startswith(("file:", "data:"))]
    assert shown.complaints() == []
    shown.look(390, dark=True)
    assert shown.run("document.documentElement.scrollWidth") == 390
    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"


def test_without_scripts_and_on_paper_all_of_it_is_there(chromium: Tab, report: str, lake: Path):
    n = min(360, rows(lake, "SELECT count(*) FROM pairs WHERE version = 1")[0][0])
    chromium.look(1280, scripts=False)
    chromium.open(report)
    assert chromium.run(f"{VISIBLE}.length") == n
    assert chromium.run("getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert chromium.run("document.querySelectorAll('figure svg rect').length") > 20
    assert len(chromium.call("Page.printToPDF", printBackground=False)["data"]) > 100_000
    chromium.look(1280)


def test_hostile_texts_stay_texts_when_they_are_searched_and_enlarged(chromium: Tab, tmp_path: Path):
    page = written(hostile_lake(tmp_path / "lake"), "small")
    chromium.look(1280)
    chromium.open(page)
    chromium.events.clear()
    ask(chromium, "<script>")
    assert len(texts(chromium)) > 0
    chromium.click("#pairs .picture img")
    assert chromium.run("document.querySelector('dialog').open")
    assert (
        chromium.run("document.querySelectorAll('dialog .words :is(script, iframe, img, svg, style, form)').length")
        == 0
    )
    assert chromium.run("window.pwned === undefined")
    assert chromium.requested() == [] and chromium.complaints() == []
