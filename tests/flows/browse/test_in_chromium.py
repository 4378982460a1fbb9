"""The pages in a real browser: scrolling, clicking, typing, the back button, no scripts, and hostile texts."""

import gzip
import json
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from shutil import copytree

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from tests.worlds.browsed import Pages, rows, served
from tests.worlds.chromium import Tab, tab
from tests.worlds.hostile_texts import FOREIGN, hostile_lake
from tests.worlds.line import curated_lake

AXE = Path(__file__).parents[2] / "worlds" / "axe.gz"
pytestmark = pytest.mark.browser
CARDS = "document.querySelectorAll('a.item').length"
DRAWN = "document.querySelector('[data-map]').dataset.drawn"
COUNT = "document.querySelector('.count b')?.textContent"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Tab]:
    with tab() as opened:
        yield opened


@pytest.fixture(scope="module")
def address(lake: Path, pages: Pages) -> Iterator[str]:
    pages.gallery("/gallery?dataset=demo@1")  # builds the gallery
    with served(lake) as found:
        yield found


@pytest.fixture
def shown(chromium: Tab, address: str) -> Tab:
    """A tab of 1280 pixels at the newest dataset's gallery."""
    chromium.events.clear()
    chromium.look(1280)
    chromium.open(address)
    chromium.until(f"{CARDS} > 0")
    return chromium


def test_scrolling_brings_every_picture_once(shown: Tab, lake: Path):
    n = rows(lake, "SELECT count(*) FROM decisions WHERE dataset = 'demo' AND version = 1")[0][0]
    shown.until(f"(window.scrollTo(0, document.body.scrollHeight), {CARDS} === {n})")
    assert shown.run("new Set([...document.querySelectorAll('a.item')].map((a) => a.href)).size") == n
    assert not shown.run("document.querySelector('a.more')") and shown.complaints() == []


def test_pictures_load_and_none_of_them_from_elsewhere(shown: Tab):
    shown.until("[...document.images].slice(0, 12).every((i) => i.complete && i.naturalWidth > 8)")
    origin = shown.run("location.origin")
    assert {address[: len(origin)] for address in shown.requested()} == {origin}
    assert "token" not in shown.run("location.href") and shown.run("document.cookie") == ""


def test_a_click_filters_and_the_back_button_returns(shown: Tab, lake: Path):
    dropped = "dataset = 'demo' AND version = 1 AND dropped_by = 'duplicate'"
    n = str(rows(lake, f"SELECT count(*) FROM decisions WHERE {dropped}")[0][0])
    every = shown.run(COUNT)
    shown.click(".chips a[href*='fate=duplicate']")
    shown.until(f"{COUNT} === '{n}'")
    shown.run("history.back()")
    shown.until(f"{COUNT} === '{every}'")


def test_a_rule_is_typed_and_sent(shown: Tab, lake: Path):
    n = str(rows(lake, "SELECT count(*) FROM images WHERE width > 150")[0][0])
    shown.click("textarea[name=where]")
    shown.call("Input.insertText", text="width > 150")
    shown.click("[data-filters] button")
    shown.until(f"{COUNT} === '{n}'")
    assert "score" not in shown.run("location.search")  # empty fields are not sent


def test_arrow_keys_move_between_pictures_and_enter_opens_one(shown: Tab):
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        shown.press(key)
    places = "[...document.querySelectorAll('a.item')].indexOf(document.activeElement)"
    assert shown.run(places) == 1 + shown.run(
        "getComputedStyle(document.querySelector('.grid')).gridTemplateColumns.split(' ').length"
    )
    aimed = shown.run("document.activeElement.href")
    shown.press("Enter")
    shown.until(f"location.href === '{aimed}' && document.querySelector('.big img') !== null")


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_window(shown: Tab, width: int):
    item = shown.run("document.querySelector('a.item').getAttribute('href')")
    origin = shown.run("location.origin")
    for path in (
        item,
        "/nowhere",
        *(f"/{room}?dataset=demo@1" for room in ("gallery", "map", "rules", "judge", "compare")),
    ):
        shown.look(width, dark=True)
        shown.open(origin + path)
        assert shown.run("document.documentElement.scrollWidth") <= width, path


def test_a_moved_threshold_estimates_at_once_and_counts_exactly_when_it_is_let_go(shown: Tab, lake: Path):
    shown.open(shown.run("location.origin") + "/rules?dataset=demo@1")
    slider = "document.querySelector('#rule-short_side [data-side=low]')"
    shown.run(f"({slider}.value = 150, {slider}.dispatchEvent(new Event('input', {{bubbles: true}})))")
    n, passing = rows(lake, "SELECT count(*), count(*) FILTER (least(width, height) >= 150) FROM images")[0]
    estimate = shown.run("document.querySelector('#rule-short_side .estimate').textContent")
    assert f"keeps {100 * passing / n:.1f} %" in estimate
    shown.run(f"{slider}.dispatchEvent(new Event('change', {{bubbles: true}}))")
    exact = shown.until("document.querySelector('#rule-short_side .exact')?.textContent")
    before = rows(lake, "SELECT count(*) FROM pairs WHERE dataset = 'demo' AND version = 1")[0][0]
    assert f"before {before}" in exact and "short_side" in exact


def test_a_lasso_on_the_map_leads_to_the_gallery_of_its_pictures(shown: Tab, lake: Path):
    shown.open(shown.run("location.origin") + "/map?dataset=demo@1")
    n = int(shown.until(f"{DRAWN} > 0 && {DRAWN}"))
    embedded = "(SELECT * FROM image_embedding WHERE image_vector IS NOT NULL)"
    assert (n,) == rows(lake, f"SELECT count(*) FROM images SEMI JOIN {embedded} USING (sha256)")[0]
    box = "document.querySelector('[data-map] canvas').getBoundingClientRect()"
    x, y, width, height = shown.run(f"(({{x, y, width, height}}) => [x, y, width, height])({box})")
    shown.click("[data-lasso]")
    corners = [(x + 2, y + 2), (x + width - 2, y + 2), (x + width - 2, y + height - 2), (x + 2, y + height - 2)]
    shown.drag([*corners, corners[0]])
    shown.until(f"location.pathname === '/gallery' && {COUNT}")
    assert shown.run(COUNT) == str(n)
    shown.run("history.back()")
    shown.until(f"location.pathname === '/map' && {DRAWN} > 0")
    assert not [text for text in shown.complaints() if "400" not in text]


def test_the_map_shows_the_picture_under_the_mouse_and_moves_and_zooms(shown: Tab):
    shown.open(shown.run("location.origin") + "/map?dataset=demo@1&by=width")
    shown.until(f"{DRAWN} > 0")
    shown.until("document.querySelector('.legend').children.length >= 5")
    at = shown.run("""(() => {
      const c = document.querySelector('[data-map] canvas'), b = c.getBoundingClientRect();
      const [n, x, y] = [0, places[0], places[1]];
      return [b.x + (c.width / 2 + (x - view.x) * view.scale) * b.width / c.width,
              b.y + (c.height / 2 + (y - view.y) * view.scale) * b.height / c.height];
    })()""")
    shown.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
    shown.until(
        "!document.querySelector('.mapcard').hidden && document.querySelector('.mapcard').href.includes('/item/')"
    )
    before = shown.run("[view.x, view.scale]")
    shown.drag([(400, 400), (460, 400)])
    shown.click("[data-zoom='1.5']")
    after = shown.run("[view.x, view.scale]")
    assert after[0] < before[0] and abs(after[1] / before[1] - 1.5) < 1e-6
    assert shown.run("location.pathname") == "/map"


def test_pairs_are_judged_by_keys_and_taken_back(shown: Tab, lake: Path):
    shown.open(shown.run("location.origin") + "/judge?dataset=demo@1")
    shown.click(".draw button")
    counted = "[...document.querySelectorAll('.judged b')].map((b) => b.textContent).join()"
    shown.until(f"document.readyState === 'complete' && {counted} === '0,0,0'")
    first = shown.run("document.querySelector('.big img').src")
    for key, expected in (
        ("1", "1,0,0"),
        ("2", "1,1,0"),
        ("3", "1,1,1"),
        ("u", "1,1,0"),
        ("u", "1,0,0"),
        ("u", "0,0,0"),
    ):
        shown.press(key)
        shown.until(f"document.readyState === 'complete' && {counted} === '{expected}'")
    assert shown.run("document.querySelector('.big img').src") == first
    assert shown.complaints() == []
    verdicts = [json.loads(line).get("verdict") for file in (lake / "judgements").iterdir() for line in file.open()]
    assert verdicts[-6:] == ["match", "mismatch", "unsure", "undone", "undone", "undone"]


@pytest.mark.parametrize("is_run", [False, True])
def test_pictures_are_searched_selected_left_out_published_explained_and_brought_back(
    chromium: Tab, tmp_path: Path, is_run: bool
):
    """The whole way on a lake of its own, also while a run writes to it; each step waits for its page."""
    lake = Path(copytree(curated_lake(), tmp_path / "lake"))
    loaded = "document.readyState === 'complete'"
    told = "document.querySelector('[data-acted] .acted')?.textContent"
    with served(lake) as address:
        chromium.events.clear()
        chromium.look(1280)
        chromium.open(address)
        origin = chromium.run("location.origin")
        chromium.open(f"{origin}/gallery?dataset=demo@1")
        chromium.until(f"{loaded} && {CARDS} > 3")
        chromium.click("input[type=search]")
        chromium.call("Input.insertText", text="a small peacock")
        chromium.press("Enter")
        chromium.until(f"{loaded} && location.search.includes('words') && {CARDS} >= 40")
        item = chromium.run("document.querySelector('a.item').getAttribute('href')")
        chromium.click(".pick input")
        boxes = "[...document.querySelectorAll('.pick input')]"
        chromium.run(f"{boxes}[39].dispatchEvent(new MouseEvent('click', {{bubbles: true, shiftKey: true}}))")
        chromium.until("document.querySelector('[data-selected]').textContent === '40 selected'")
        distinct = chromium.run(f"new Set({boxes}.slice(0, 40).map((box) => box.value)).size")
        with create_or_open(lake) as opened, lease.writing(opened, "run-2", "test") if is_run else nullcontext():
            chromium.click("button[value=leave_out]")
            assert ("waiting" in chromium.until(told)) == is_run
            assert chromium.run("document.querySelectorAll('.mark').length") == 40
            chromium.open(f"{origin}/acts?dataset=demo@1")
            assert chromium.run("document.querySelector('tbody').innerText.includes('waiting for the run')") == is_run
        chromium.open(f"{origin}/publish?dataset=demo@1")
        chromium.until(f"{loaded} && document.querySelector('tbody').innerText.includes('left_out')")
        chromium.click("main form button")
        chromium.until(f"{loaded} && location.pathname === '/compare'")
        chromium.open(f"{origin}{item.replace('demo%401', 'demo%402')}")
        chromium.until(f"{loaded} && document.querySelector('h1').innerText.includes('left_out')")
        chromium.open(f"{origin}/acts?dataset=demo@2")
        chromium.click("tbody button")
        chromium.until(f"{loaded} && document.querySelector('.acted')?.textContent.includes('undone')")
        assert chromium.complaints() == []
    acts = "SELECT act, count(DISTINCT act_id), count(sha256) FROM acts GROUP BY act ORDER BY act"
    assert rows(lake, acts) == [("leave_out", 1, distinct), ("undo", 1, 0)]


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_no_fault_on_any_page(shown: Tab, lake: Path, dark: bool):
    """axe-core's rules, its best practices too, at a desk's and a phone's size. `axe.gz` is npm's axe-core 4.14.1."""
    axe = gzip.decompress(AXE.read_bytes()).decode()
    found = "axe.run().then((r) => r.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 200)}`))"
    ((image,),) = rows(lake, "SELECT min(image_id) FROM pairs")
    ((sentence, cluster),) = rows(lake, "SELECT (SELECT min(content) FROM sentences), (SELECT min(cluster) FROM pairs)")
    rooms = ("gallery", "map", "rules", "judge", "compare", "acts", "publish", "report")
    paths = (*rooms, f"item/{image}", f"sentence/{sentence}", f"cluster/{cluster}", "nowhere")
    origin = shown.run("location.origin")
    shown.call("Page.setBypassCSP", enabled=True)
    try:
        for path in paths:
            shown.open(f"{origin}/{path}?dataset=demo@1")
            shown.run(f"{axe};0")
            for width, height in ((1440, 900), (390, 844)):
                shown.look(width, height, dark=dark)
                assert shown.run(found) == [], (path, width)
    finally:
        shown.call("Page.setBypassCSP", enabled=False)


def test_without_scripts_a_gallery_is_paged_by_links(shown: Tab):
    origin = shown.run("location.origin")
    shown.look(1280, scripts=False)
    try:
        shown.open(f"{origin}/gallery?dataset=demo@1")
        first = shown.run("document.querySelector('a.item').href")
        shown.click("a.more")
        shown.until(f"document.querySelector('a.item')?.href !== '{first}'")
    finally:
        shown.look(1280)


def test_hostile_texts_run_no_script_and_load_nothing(chromium: Tab, tmp_path: Path):
    lake = hostile_lake(tmp_path / "lake")
    with served(lake) as address:
        origin = address.partition("/?")[0]
        chromium.call("Page.navigate", url="about:blank")
        chromium.until("location.href === 'about:blank'")
        chromium.events.clear()
        chromium.look(1280)
        chromium.open(address)
        chromium.until(f"{CARDS} > 0")
        item = chromium.run("document.querySelector('a.item').getAttribute('href')")
        for path in (item, "/gallery", "/rules?dataset=small@1", "/gallery?where=%3Cscript%3E"):
            chromium.open(origin + path)
            chromium.until("document.querySelector('main').innerText.length > 20")
            assert chromium.run("[typeof window.pwned, document.querySelectorAll('script:not([src])').length]") == [
                "undefined", 0,
            ]  # fmt: skip
        assert {each[: len(origin)] for each in chromium.requested()} == {origin}
        assert not [event for event in chromium.events if event["method"] == "Page.javascriptDialogOpening"]
        assert not [text for text in chromium.complaints() if "400" not in text]
        assert FOREIGN not in str(chromium.requested())
