"""The report in a real browser: enlarged pictures, a phone, paper, hostile texts, no request."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.pages.html_report import write_report
from tests.worlds.browsed import rows
from tests.worlds.chromium import Tab, tab
from tests.worlds.hostile_texts import hostile_lake

pytestmark = pytest.mark.browser


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


def test_a_picture_is_enlarged_by_keys_alone(shown: Tab):
    first = "document.querySelector('#pairs img')"
    small = shown.run(f"{first}.getBoundingClientRect().width")
    shown.run(f"({first}.focus(), 1)")
    assert shown.run(f"{first}.getBoundingClientRect().width") == 1280 > small
    shown.press("Tab")
    assert shown.run(f"{first}.getBoundingClientRect().width") == small


def test_it_requests_nothing_and_fits_a_phone(shown: Tab):
    assert shown.requested() and not [a for a in shown.requested() if not a.startswith(("file:", "data:"))]
    assert shown.complaints() == []
    shown.look(390, dark=True)
    assert shown.run("document.documentElement.scrollWidth") == 390
    assert shown.run("getComputedStyle(document.body).backgroundColor") == "rgb(19, 20, 22)"


def test_all_pairs_are_there_and_it_prints(shown: Tab, lake: Path):
    n = min(360, rows(lake, "SELECT count(*) FROM pairs WHERE version = 1")[0][0])
    assert shown.run("document.querySelectorAll('#pairs .pair').length") == n
    assert shown.run("document.querySelectorAll('svg.chart rect').length") > 20
    assert len(shown.call("Page.printToPDF", printBackground=False)["data"]) > 100_000


def test_hostile_texts_stay_texts(chromium: Tab, tmp_path: Path):
    page = written(hostile_lake(tmp_path / "lake"), "small")
    chromium.look(1280)
    chromium.events.clear()
    chromium.open(page)
    assert chromium.run("document.querySelectorAll('script, iframe, form, base, object').length") == 0
    assert chromium.run("window.pwned === undefined")
    assert not [a for a in chromium.requested() if not a.startswith(("file:", "data:"))]
    assert chromium.complaints() == []
