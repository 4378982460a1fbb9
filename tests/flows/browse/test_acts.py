"""Acts on the pages: what is selected is left out, kept or tagged, is listed, published and undone."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from urllib.parse import quote

import duckdb
import pytest
from lxml import html

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.flows.command.cli import main
from tests.worlds.browsed import ORIGIN, Pages, browsed, rows, text
from tests.worlds.line import curated_lake

KEPT = "SELECT DISTINCT sha256 FROM pairs WHERE version = 1 ORDER BY ALL"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(copytree(curated_lake(), tmp_path_factory.mktemp("acted") / "lake"))


@pytest.fixture(scope="module")
def acted(place: Path) -> Iterator[Pages]:
    with browsed(place) as opened:
        opened.gallery("/gallery?dataset=demo@1")
        yield opened


def send(pages: Pages, status: int = 200, path: str = "/acts", **form: str | list[str]) -> str:
    """Send a form as the page does; return the answer's text."""
    data = {"dataset": "demo@1"} | form if path == "/acts" else form
    answer = pages.client.post(path, data=data, headers={"Origin": ORIGIN}, follow_redirects=False)
    assert answer.status_code == status, (answer.status_code, answer.text[:2000])
    return answer.text


def stored(place: Path) -> list[tuple]:
    sql = 'SELECT act, count(sha256), min(before) FROM acts GROUP BY act_id, act, "commit" ORDER BY "commit"'
    return rows(place, sql)


def moves(page: html.HtmlElement) -> list[list[str]]:
    """Return the cells of each row of the page before publishing."""
    return [[text(cell) for cell in row] for row in page.xpath("//tbody/tr")]


@pytest.mark.slow
def test_selected_pictures_are_left_out_shown_published_and_brought_back(acted: Pages, place: Path):
    kept = [sha for (sha,) in rows(place, KEPT)]
    assert "leave out" in send(acted, act="leave_out", picture=kept[:3]) and stored(place) == [("leave_out", 3, "kept")]
    page = acted.page("/gallery?dataset=demo@1&where=" + quote(f"sha256 = '{kept[0]}'"))
    assert [text(each) for each in page.xpath("//*[@class='mark']")] == ["leave out"]
    item = page.xpath("//a[@class='item']/@href")[0]
    assert "By hand: leave out" in text(acted.page(item)) and "not published yet" in text(acted.page(item))
    shown = acted.page("/publish?dataset=demo@1")
    assert ["3", "kept", "left_out"] in moves(shown)
    if "A run makes them" not in text(shown):  # others of a cluster may move up that have no texts yet
        send(acted, 303, "/publish", dataset="demo@1")
        assert rows(place, "SELECT count(*) FROM decisions WHERE version = 2 AND dropped_by = 'left_out'") == [(3,)]
        assert "dropped by left_out" in text(acted.page("/compare?dataset=demo@2"))
        assert "nobody leaves it out" in text(acted.page(item.replace("demo%401", "demo%402")))
    else:
        assert "lack texts" in send(acted, 400, "/publish", dataset="demo@1")
    listed = acted.page("/acts?dataset=demo@1")
    (act_id,) = listed.xpath("//input[@name='act_id']/@value")
    assert "undone" in send(acted, act="undo", act_id=act_id)
    assert "undone" in text(acted.page("/acts?dataset=demo@1").xpath("//tbody")[0])
    assert not moves(acted.page("/publish?dataset=demo@1"))


@pytest.mark.slow
def test_all_of_a_filter_is_meant_by_one_tick_and_is_exported(
    acted: Pages, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    where = "width > 150"
    dropped = {sha for (sha,) in rows(place, f"SELECT sha256 FROM images WHERE {where}")}
    page = acted.page(f"/gallery?dataset=demo@1&where={quote(where)}")
    (query,) = page.xpath("//form[@id='act']/input[@name='query']/@value")
    line = html.fromstring(send(acted, act="export", every="1", query=query)).xpath("string(//code)")
    assert main([*shlex.split(line)[1:], "--format", "texts"]) == 0  # the line exports the selection and nothing else
    taken = "SELECT sha256 FROM 'demo@1-selection/*.parquet'"
    assert {sha for (sha,) in duckdb.sql(taken).fetchall()} == dropped & {sha for (sha,) in rows(place, KEPT)}
    assert f"{len(dropped)} pictures" in " ".join(send(acted, act="tag", word="wide", every="1", query=query).split())
    link = page.xpath("//a[contains(., 'make this filter a rule')]/@href")[0]
    assert where in acted.page(link).xpath("//section[@id='new']//textarea")[0].text
    rule = {"dataset": "demo@1", "kind": "image", "rule": "broad", "keep": where}
    tried = acted.client.get("/rules/try", params=rule)
    assert "images.broad.keep=width &gt; 150" in tried.text and "fault" not in tried.text
    assert "name: broad" in acted.client.get("/rules/recipe", params=rule).text


@pytest.mark.slow
def test_two_windows_act_while_a_run_writes_and_both_acts_wait(acted: Pages, place: Path):
    kept, before = [sha for (sha,) in rows(place, KEPT)], stored(place)
    with create_or_open(place) as lake, lease.writing(lake, "run-2", "test"):
        assert "waiting" in send(acted, act="keep", picture=kept[:1])
        with browsed(place) as other:
            other.gallery("/gallery?dataset=demo@1")
            assert "waiting" in send(other, act="edit", picture=kept[1:2], text="A new caption.")
        assert stored(place) == before
        assert text(acted.page("/acts?dataset=demo@1")).count("waiting for the run") == 2
        assert "2 acts wait" in text(acted.page("/publish?dataset=demo@1"))
        assert "is being written by" in send(acted, 400, "/publish", dataset="demo@1")
    assert [(what, n) for what, n, _ in stored(place)[len(before) :]] == [("keep", 1), ("edit", 1)]


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"act": "drop"}, "'act' in the address"),
        ({"act": "leave_out"}, "no picture is selected"),
        ({"act": "leave_out", "picture": "x' OR true --"}, "'0' in the address"),
        ({"act": "leave_out", "picture": "0" * 32}, "no picture is selected"),
        ({"act": "tag", "picture": "0" * 32, "word": "x" * 101}, "'word' in the address"),
        ({"act": "leave_out", "every": "1", "query": "where=drop table"}, "filter"),
        ({"act": "leave_out", "dataset": ""}, "choose a dataset version first"),
        ({"act": "leave_out", "dataset": "../etc"}, "../etc"),
        ({"act": "undo", "act_id": "0" * 32}, "has no edit"),
        ({"act": "undo", "act_id": "' OR 1"}, "'act_id' in the address"),
        ({"act": "leave_out", "picture": ["0" * 32] * 130_000}, "this form is too long"),
    ],
)
def test_a_form_that_is_not_valid_is_refused_and_stores_nothing(
    acted: Pages, place: Path, form: dict[str, str | list[str]], told: str
):
    before = stored(place)
    assert told in send(acted, 400, "/acts", **form).replace("&#39;", "'")
    assert stored(place) == before
