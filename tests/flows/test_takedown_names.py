"""`pairmill takedown` takes each name that `pairmill why` takes; a second takedown says when the first was."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.flows.command import removals
from pairmill.flows.command.cli import main
from pairmill.tasks.upkeep.item_copies import NOT_REACHED
from tests.flows.test_unfinished_removals import killed_removal
from tests.worlds.published import SENTENCES, picture, published

N = 4
IMAGE, DOCUMENT, SHA = text_id("image", str(N)), text_id("document", str(N)), content_id(picture(N))
ADDRESS = f"https://example.org/{N}.jpg"
BOTH = Subject(pictures=(SHA,), documents=(DOCUMENT,))
NAMED = {
    IMAGE: Subject(pictures=(SHA,)),
    SHA: Subject(pictures=(SHA,)),
    f"{SHA}{'0' * 32}": Subject(pictures=(SHA,), items=(SHA,)),
    DOCUMENT: Subject(documents=(DOCUMENT,)),
    ADDRESS: Subject((ADDRESS,), pictures=(SHA,), documents=(DOCUMENT,)),
    f"https://me:secret@example.org/{N}.jpg": Subject(
        (ADDRESS,), pictures=(SHA,), documents=(DOCUMENT,), items=(ADDRESS,)
    ),
    f"{N}.jpg": BOTH,
    f"http://127.0.0.1:8765/item/{IMAGE}?dataset=small@1": Subject(pictures=(SHA,), items=(IMAGE,)),
    f"http://localhost:1/picture/large/{SHA}": Subject(pictures=(SHA,), items=(SHA,)),
    "https://example.org/unknown.jpg": Subject(("https://example.org/unknown.jpg",)),
}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("named") / "lake"
    published(folder)
    with create_or_open(folder) as opened:
        yield opened


@pytest.mark.parametrize("item", NAMED)
def test_an_item_is_what_why_finds_by_it(lake: Lake, item: str):
    expected = NAMED[item]
    found = removals._with_items(lake, Subject(), [item])
    assert found == replace(expected, items=expected.items or (item,))


@pytest.mark.slow
def test_a_file_is_found_by_its_path_and_a_copy_of_it_by_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    published(tmp_path / "lake", url=f"{tmp_path}/{{n}}.jpg")
    stored = str(tmp_path / f"{N}.jpg")
    for name in (stored, "copy.jpg"):
        (tmp_path / name).write_bytes(picture(N))
    monkeypatch.chdir(tmp_path)
    with create_or_open(tmp_path / "lake") as lake:
        found = removals._with_items(lake, Subject(), [f"{N}.jpg"])
        assert found == Subject((stored,), pictures=(SHA,), documents=(DOCUMENT,), items=(stored,))
        assert removals._with_items(lake, Subject(), ["copy.jpg"]).pictures == (SHA,)


def test_a_page_whose_address_ends_in_a_slash_is_taken_without_what_lies_below_it(tmp_path: Path):
    published(tmp_path / "lake")
    page = "https://example.org/"
    with create_or_open(tmp_path / "lake") as lake:
        lake.execute("UPDATE documents SET uri = ? WHERE document_id = ?", (page, DOCUMENT))
        assert removals._with_items(lake, Subject(), [page]) == Subject(documents=(DOCUMENT,), items=(page,))


@pytest.mark.slow
def test_an_address_in_quarantine_that_ends_in_a_slash_takes_nothing_below_it(tmp_path: Path):
    page = "https://example.org/"
    published(tmp_path / "lake", faults=((page, "not_an_image", "html"),))
    told = pytest.raises(PairmillError, match=f"holds no page '{page}'.*--url {page}$")
    with create_or_open(tmp_path / "lake") as lake, told:
        removals._with_items(lake, Subject(), [page])


@pytest.mark.parametrize(("item", "told"), [
    (text_id(SENTENCES[0]), "is a sentence"), ("f" * 32, "knows no 'f"),
    ("See http://example.org/1.jpg for more", "knows no 'See"),
    ("https://example.org/", r"knows no page .* everything below this address: --url https://example\.org/$"),
])  # fmt: skip
def test_what_is_neither_picture_nor_document_is_refused(lake: Lake, item: str, told: str):
    with pytest.raises(PairmillError, match=told):
        removals._with_items(lake, Subject(), [item])


@pytest.mark.slow
@pytest.mark.usefixtures("own_temporary_files")
def test_a_second_takedown_finishes_the_first_and_says_when_it_was_by_each_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    place, report = ["--lake", str(tmp_path / "lake")], tmp_path / "report.json"
    published(tmp_path / "lake")
    shown = f"http://127.0.0.1:8765/item/{IMAGE}"
    killed_removal(tmp_path / "lake", "deleted", ["takedown", shown, "--yes", "--reason", "it is mine"])
    other = tmp_path / "lake" / f".spill-elsewhere-1-{'0' * 32}"
    other.mkdir()
    assert main(["takedown", shown, "--yes", "--report", str(report), *place]) == 0
    told = capsys.readouterr().out
    assert f"{IMAGE}: removed on 20" in told and "UTC (it is mine), and kept out since\n" in told
    said = json.loads(report.read_text())
    assert "finished 1 removals" in told and said["pictures"] == [SHA]
    assert f"not reached: {other}, which" in told
    *always, stays = said["not_reached"]
    assert always == [*NOT_REACHED] and str(other) in stays
    for name in (["takedown", SHA], ["takedown", IMAGE], ["takedown", "--url", ADDRESS, SHA]):
        assert main([*name, "--dry-run", *place]) == 0
        assert "removed on 20" in capsys.readouterr().out
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT count(*) FROM takedowns") == [(1,)]
