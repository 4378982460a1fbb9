"""Whatever a page of the web wrote into captions, names and addresses, it stays text."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lxml import html

from tests.worlds.browsed import Pages, browsed, ids
from tests.worlds.hostile_texts import FOREIGN, SCRIPT, TEXT, hostile_lake

OWN = re.compile(r"(/[a-z].*|#.*|\?.*|/)")


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    with browsed(hostile_lake(tmp_path_factory.mktemp("hostile") / "lake")) as pages:
        yield pages


def assert_harmless(page: html.HtmlElement) -> None:
    scripts = page.xpath("//script/@src")
    assert scripts == ["/static/htmx-2.0.8.min.js", "/static/browse.js"] and not page.xpath("//script[not(@src)]")
    assert not page.xpath("//iframe | //object | //embed | //base | //style | //svg//script | //meta[@http-equiv]")
    names = {name.lower() for element in page.iter() if isinstance(element.tag, str) for name in element.attrib}
    assert not {name for name in names if name.startswith(("on", "hx-on", "style"))}
    for attribute in ("href", "src", "action", "hx-get", "hx-post", "formaction"):
        assert [value for value in page.xpath(f"//@{attribute}") if not OWN.fullmatch(value)] == []


@pytest.mark.slow
def test_a_gallery_and_a_picture_contain_texts_and_no_markup_of_them(hostile: Pages):
    for dataset in ("", "small@1"):
        gallery = hostile.gallery(f"/gallery?dataset={dataset}")
        assert_harmless(gallery)
        item = hostile.page(f"/item/{ids(gallery)[0]}?dataset={dataset}")
        assert_harmless(item)
        assert TEXT[:60] in item.text_content() and "\u202e" not in item.text_content()


@pytest.mark.parametrize(
    "name", ["dataset", "fate", "source", "tag", "where", "words", "like", "sort", "after", "group"]
)
def test_an_address_writes_nothing_into_a_page(hostile: Pages, name: str):
    hostile.gallery("/gallery?dataset=small@1")
    for path in ("/gallery", "/gallery/more"):
        answer = hostile.client.get(path, params={"dataset": "small@1", name: TEXT[:180]})
        assert f"<script>{SCRIPT}" not in answer.text and f"={FOREIGN}" not in answer.text.replace("&#39;", "")
        if path == "/gallery":
            assert_harmless(html.fromstring(answer.text))


def test_a_program_that_is_named_as_a_picture_is_not_served_as_one(hostile: Pages, tmp_path: Path):
    answer = hostile.client.get("/picture/small/" + "a" * 32)
    assert b"script" not in answer.content and answer.headers["x-content-type-options"] == "nosniff"
