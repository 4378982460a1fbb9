"""What a source says now counts; what it said before stays for the versions that saw it."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import sentence_funnel
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending.superseded import gone_documents, gone_sentences
from pairmill.catalog.queries.explain.why import Scope, superseded_at
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.flows.command.cli import main
from pairmill.flows.run.survey import survey
from pairmill.ops.read.declared_formats import formats
from pairmill.ops.read.source import open_source
from pairmill.ops.text.split import SentenceSplitter
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.run.session import Session
from tests.worlds.superseding import alive, ingested, newest
from tests.worlds.web import photograph


def page(place: Path, name: str, text: str, *pictures: int, at: int) -> None:
    """A page of one sentence and some pictures; ``at`` is its time, which its etag shows."""
    folder = place / "pages"
    folder.mkdir(parents=True, exist_ok=True)
    for n in pictures:
        if not (folder / f"{n}.jpg").exists():
            (folder / f"{n}.jpg").write_bytes(photograph(n))
    images = "".join(f'<img src="{n}.jpg">' for n in pictures)
    file = folder / f"{name}.html"
    file.write_text(f"<html><body><article><p>{text}</p>{images}</article></body></html>")
    os.utime(file, (at, at))


@pytest.mark.slow
def test_a_changed_page_says_only_what_it_says_now_and_older_commits_still_see_the_old(tmp_path: Path):
    page(tmp_path, "a", "The old words of the page.", 1, 2, at=1)
    page(tmp_path, "b", "Another page stays as it is.", 3, at=1)
    with ingested(tmp_path) as held:
        before = newest(held)
        was = alive(held)
        assert was == ({"The old words of the page.", "Another page stays as it is."}, {"1.jpg", "2.jpg", "3.jpg"})
    page(tmp_path, "a", "The new words of the page.", 2, 4, at=2)
    (tmp_path / "pages/1.jpg").unlink()
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 1
        assert alive(held) == (
            {"The new words of the page.", "Another page stays as it is."},
            {"2.jpg", "4.jpg", "3.jpg"},
        )
        assert alive(held, before) == was
        commits = [superseded_at(held.lake, row[0]) for row in held.lake.query("SELECT document_id FROM documents")]
        assert sorted(since is None for since in commits) == [False, True, True]
        cut(held.lake, held.plan)
        assert sentence_funnel(held.lake, held.plan)[0] == ("same_text", 2, 0)
        stories = [
            explain_image(held.lake, row[0], Scope(frozenset()))
            for row in held.lake.query("SELECT image_id FROM images")
        ]
        seen = {(each["origin"]["url"].rpartition("/")[2], bool(each["origin"]["superseded"])) for each in stories}
        assert seen == {("1.jpg", True), ("2.jpg", True), ("2.jpg", False), ("3.jpg", False), ("4.jpg", False)}
        assert {each["origin"]["occurrences"] for each in stories if each["origin"]["url"].endswith("2.jpg")} == {1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "back", [pytest.param(1, id="with the etag of then"), pytest.param(3, id="with another", marks=pytest.mark.full)]
)
def test_a_page_that_goes_back_to_what_it_said_is_as_it_was_without_rows_twice(back: int, tmp_path: Path):
    for at, text in ((1, "What was said first."), (2, "What was said then."), (back, "What was said first.")):
        page(tmp_path, "a", text, 1, at=at)
        with ingested(tmp_path) as held:
            assert alive(held) == ({text}, {"1.jpg"})
            for table, key in (("images", "image_id"), ("sentences", "sentence_id"), ("documents", "document_id")):
                assert held.lake.query(f"SELECT {key} FROM {table} GROUP BY {key} HAVING count(*) > 1") == []
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 0


@pytest.mark.slow
def test_a_changed_page_supersedes_what_was_read_before_though_the_record_of_that_reading_was_lost(tmp_path: Path):
    page(tmp_path, "a", "The old words of the page.", 1, at=1)
    page(tmp_path, "b", "Another page stays as it is.", 2, at=1)
    with ingested(tmp_path) as held:
        paths = held.lake.query("SELECT path FROM partitions WHERE \"table\" = 'inputs' AND rows > 0")
        files = [Path(held.lake.data_path + path) for (path,) in paths]
    for file in files:
        file.unlink()
    assert main(["check", "--repair", "--lake", str(tmp_path / "lake")]) == 0
    page(tmp_path, "a", "The new words of the page.", 1, at=2)
    with ingested(tmp_path) as held:
        assert alive(held)[0] == {"The new words of the page.", "Another page stays as it is."}
        assert held.lake.query("SELECT count(*) FROM documents") == [(3,)]


@pytest.mark.slow
def test_a_touched_page_is_read_again_and_changes_nothing(tmp_path: Path):
    page(tmp_path, "a", "The words of the page.", 1, at=1)
    with ingested(tmp_path) as held:
        was = alive(held)
    page(tmp_path, "a", "The words of the page.", 1, at=2)
    for n in (1, 0):
        with ingested(tmp_path) as held:
            assert held.counts["ingest"] == n
            assert alive(held) == was
            assert held.lake.query("SELECT count(*) FROM superseded") == [(0,)]
            assert held.lake.query("SELECT count(*) FROM images") == [(1,)]


@pytest.mark.slow
def test_a_sentence_that_another_page_still_says_is_not_gone(tmp_path: Path):
    page(tmp_path, "a", "Both pages say this sentence.", 1, at=1)
    page(tmp_path, "b", "Both pages say this sentence.", 2, at=1)
    with ingested(tmp_path):
        pass
    page(tmp_path, "a", "Only one page says this now.", 1, at=2)
    with ingested(tmp_path) as held:
        assert len(held.lake.query(f"SELECT * FROM {gone_documents()}")) == 1
        assert held.lake.query(f"SELECT * FROM {gone_sentences()}") == []
        assert alive(held)[0] == {"Both pages say this sentence.", "Only one page says this now."}


@pytest.mark.slow
def test_a_killed_run_leaves_the_comparison_to_the_next(tmp_path: Path, monkeypatch):
    page(tmp_path, "a", "The old words of the page.", 1, at=1)
    with ingested(tmp_path):
        pass
    page(tmp_path, "a", "The new words of the page.", 2, at=2)
    (tmp_path / "pages/1.jpg").unlink()

    class Killed(Exception):
        pass

    def die(*_: object) -> None:
        raise Killed

    try:
        with monkeypatch.context() as patch:
            patch.setattr("pairmill.catalog.pending.contents.superseded.supersede", die)
            with ingested(tmp_path):
                raise AssertionError("was to be killed")
    except Killed:
        pass
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 0
        assert alive(held) == ({"The new words of the page."}, {"2.jpg"})


@pytest.mark.parametrize(
    "spelled",
    [
        "pages/",
        pytest.param("html_folder:pages", marks=pytest.mark.slow),
        *(pytest.param(each, marks=pytest.mark.full) for each in ("pages", "file://{}/pages", "pages/a.html")),
    ],
)
def test_a_changed_page_supersedes_what_it_said_however_its_source_is_spelled(
    spelled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    page(tmp_path, "a", "The old words of the page.", 1, 2, at=1)
    with ingested(tmp_path):
        pass
    page(tmp_path, "a", "The new words of the page.", 2, at=2)
    (tmp_path / "pages/1.jpg").unlink()
    for n in (1, 0):
        with ingested(tmp_path, spelled.format(tmp_path)) as held:
            assert held.counts["ingest"] == n
            assert alive(held) == ({"The new words of the page."}, {"2.jpg"})


@pytest.mark.slow
def test_a_lake_in_which_a_source_stands_as_it_was_typed_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As former versions wrote it: rows and ids with the source 'pages'."""
    texts = {name: f"The words of page {name}." for name in "abc"}
    for n, (name, text) in enumerate(texts.items()):
        page(tmp_path, name, text, n, at=1)
    with monkeypatch.context() as patch:
        patch.setattr("pairmill.tasks.collect.ingest.open_source", lambda uri: replace(open_source(uri), uri="pages"))
        with ingested(tmp_path) as held:
            assert held.lake.query("SELECT DISTINCT source FROM documents") == [("pages",)]
            before, was = newest(held), alive(held)
    page(tmp_path, "a", "The new words of the page.", 0, at=2)
    page(tmp_path, "b", texts["b"], 1, at=2)
    for n in (1, 0):
        with ingested(tmp_path) as held:
            assert held.counts["ingest"] == n
            assert alive(held) == ({"The new words of the page.", texts["b"], texts["c"]}, {"0.jpg", "1.jpg", "2.jpg"})
            assert held.lake.query(f"SELECT count(*) FROM images ANTI JOIN {gone_documents()} USING (document_id)") == [
                (3,)
            ]
            assert alive(held, before) == was


@pytest.mark.slow
def test_what_one_source_passes_over_is_not_gone_from_another(tmp_path: Path):
    """Two sources of one folder: one takes its pages, the other its pictures, and each passes over the rest."""
    page(tmp_path, "a", "The words of the page.", 1, at=1)
    (tmp_path / "pages/loose.jpg").write_bytes(photograph(9))
    sources = [f"{format}:{tmp_path / 'pages'}" for format in ("html_folder", "image_folder")]
    for text in ("The words of the page.", "The new words of the page.", "The new words of the page."):
        page(tmp_path, "a", text, 1, at=len(text))
        with ingested(tmp_path, *sources) as held:
            assert alive(held) == ({text}, {"1.jpg", "loose.jpg"})


@pytest.mark.slow
def test_what_is_quarantined_is_tried_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page(tmp_path, "a", "This page has a bad picture.", 1, at=1)
    (tmp_path / "pages/1.jpg").write_bytes(b"<html>")
    monkeypatch.chdir(tmp_path)
    with ingested(tmp_path, "pages"):
        pass
    (tmp_path / "pages/1.jpg").write_bytes(photograph(1))
    page(tmp_path / "elsewhere", "b", "Another page of another folder.", 2, at=1)
    monkeypatch.chdir(tmp_path / "elsewhere")
    with ingested(tmp_path, "pages") as held:
        assert retry_quarantined(held, "not_an_image") == 1
        texts = {"This page has a bad picture.", "Another page of another folder."}
        assert alive(held) == (texts, {"1.jpg", "2.jpg"})


@pytest.mark.slow
def test_a_picture_put_right_beside_its_page_is_read_with_it(tmp_path: Path):
    page(tmp_path, "a", "This page has a bad picture.", 1, at=1)
    (tmp_path / "pages/1.jpg").write_bytes(b"<html>")
    with ingested(tmp_path) as held:
        assert alive(held)[1] == set()
    (tmp_path / "pages/1.jpg").write_bytes(photograph(1))
    with ingested(tmp_path) as held:
        assert alive(held) == ({"This page has a bad picture."}, {"1.jpg"})
        assert held.lake.query("SELECT count(*) FROM quarantine") == [(0,)]


def test_a_vanished_page_is_reported_and_keeps_its_rows(tmp_path: Path):
    page(tmp_path, "a", "This page will go away.", 1, at=1)
    page(tmp_path, "b", "This page stays for good.", 2, at=1)
    with ingested(tmp_path) as held:
        was = alive(held)
    (tmp_path / "pages/a.html").unlink()
    (tmp_path / "pages/1.jpg").unlink()
    with ingested(tmp_path) as held:
        assert alive(held) == was
        assert any("no longer holds 1 units" in note and "a.html" in note for note in held.notes)


@pytest.mark.slow
def test_quarantine_keeps_what_a_changed_unit_still_complains_of(tmp_path: Path):
    page(tmp_path, "a", "This page has bad pictures.", 1, 2, at=1)
    (tmp_path / "pages/1.jpg").write_bytes(b"")
    (tmp_path / "pages/2.jpg").write_bytes(b"<html>")
    with ingested(tmp_path) as held:
        complaints = held.lake.query("SELECT reason, payload_ref FROM quarantine ORDER BY ALL")
        unit = str(tmp_path / "pages/a.html")
        assert complaints == [("empty", unit), ("not_an_image", unit)]
    (tmp_path / "pages/1.jpg").write_bytes(photograph(1))
    page(tmp_path, "a", "This page has bad pictures.", 1, 2, at=2)
    with ingested(tmp_path) as held:
        assert held.lake.query("SELECT reason FROM quarantine") == [("not_an_image",)]


@pytest.mark.slow
def test_a_listing_of_many_rounds_gives_the_shards_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for n in range(7):
        page(tmp_path, f"p{n}", f"These are the words of page {n}.", at=1)
    found = []
    for units in (1000, 3):
        monkeypatch.setattr("pairmill.tasks.collect.ingest.ROUND_UNITS", units)
        with ingested(tmp_path) as held:
            rounds = held.lake.query("SELECT count(*) FROM commits WHERE step = 'ingest'")[0][0]
            shards = held.lake.query("SELECT shard, uri FROM documents ORDER BY ALL")
            found.append((rounds, held.counts["ingest"], shards))
        shutil.rmtree(tmp_path / "lake")
    assert [(rounds, n) for rounds, n, _ in found] == [(1, 4), (2, 4)]
    assert found[0][2] == found[1][2] and len(found[0][2]) == 7


@pytest.mark.slow
def test_a_lake_inside_its_own_source_is_never_read(tmp_path: Path):
    page(tmp_path, "a", "The words of the page.", 1, at=1)
    for read in (1, 0, 0):
        with ingested(tmp_path, str(tmp_path)) as held:
            assert held.counts["ingest"] == read
            assert alive(held) == ({"The words of the page."}, {"1.jpg"})
            items = held.lake.query("SELECT item, reason FROM quarantine")
            assert items == [(str(tmp_path / "lake"), "left_out")]
            (tmp_path / "lake" / "reports").mkdir(exist_ok=True)
            (tmp_path / "lake" / "reports" / "demo-1.html").write_text("<p>A report of 1.jpg.</p>")


def texts_of(held: Session) -> list[str]:
    return sorted(alive(held)[0])


@pytest.mark.slow
@pytest.mark.parametrize("noted", [True, False], ids=["as noted", "before readers were noted"])
def test_a_mended_reader_reads_again_what_it_read_and_is_foretold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
):
    page(tmp_path, "a", "The words of the page.", 1, 2, at=1)
    page(tmp_path, "b", "Another page says this.", 3, at=1)
    with ingested(tmp_path) as held:
        was, upto = alive(held), newest(held)
        if not noted:
            held.lake.execute("UPDATE inputs SET reader = NULL")
    with ingested(tmp_path) as held:
        assert (held.counts.get("ingest", 0), held.notes) == (0, [])
    monkeypatch.setattr(formats()["html_folder"], "version", 2, raising=False)
    told = "2 units are read again, by html_folder 2, en sentences 1; they were read by html_folder 1, en sentences 1."
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        seen = survey(lake, held.plan, [str(tmp_path / "pages")])
        assert [(each.work, each.rows) for each in seen.found[:1]] == [("ingest", 2)]
        assert any(told in note for note in seen.notes)
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 1 and any(told in note for note in held.notes)
        assert alive(held) == was == alive(held, upto)
        gone = f"count(*) FILTER (document_id IN {gone_documents()})"
        assert held.lake.query(f"SELECT count(*), {gone} FROM documents") == [(4, 2)]
    with ingested(tmp_path) as held:
        assert (held.counts.get("ingest", 0), held.notes) == (0, [])


@pytest.mark.slow
def test_a_mended_splitter_or_another_language_leaves_no_sentence_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    text = "Am 3. Mai kam er an. Dann war alles gut."
    page(tmp_path, "a", text, 1, at=1)
    with ingested(tmp_path) as held:
        english = texts_of(held)
    with ingested(tmp_path, language="de") as held:
        german = texts_of(held)
        assert german != english
    with ingested(tmp_path, language="de") as held:
        assert held.counts.get("ingest", 0) == 0
    with ingested(tmp_path, case="lower") as held:
        assert texts_of(held) == [sentence.lower() for sentence in english]
    with ingested(tmp_path) as held:
        assert texts_of(held) == english
    monkeypatch.setattr(SentenceSplitter, "version", 2)
    with ingested(tmp_path) as held:
        assert held.counts["ingest"] == 1 and texts_of(held) == english
        gone = held.lake.query(f"SELECT count(*) FROM documents WHERE document_id NOT IN {gone_documents()}")
        assert gone == [(1,)]
