"""One rule for sources that change: what counts of a unit is its last reading (infra/docs/sources.md)."""

import os
import shutil
from pathlib import Path

import pytest

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.tasks.run.session import Session
from tests.worlds.superseding import alive, ingested
from tests.worlds.web import photograph


def page(folder: Path, name: str, text: str, *pictures: int, at: int = 1) -> None:
    """A page of one sentence and some pictures; ``at`` is its time, which its etag shows."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in pictures:
        (folder / f"{n}.jpg").write_bytes(photograph(n))
        os.utime(folder / f"{n}.jpg", (1, 1))
    images = "".join(f'<img src="{n}.jpg">' for n in pictures)
    (folder / f"{name}.html").write_text(f"<html><body><article><p>{text}</p>{images}</article></body></html>")
    os.utime(folder / f"{name}.html", (at, at))


def version(held: Session) -> int:
    """Publish what the lake holds now. Nothing is scored: a version decides on every picture that counts."""
    cut(held.lake, held.plan)
    published = publish(held.lake, held.plan, held.writer.run_id, None, lambda: held.begin("publish").commit)
    return published.version


def decided(held: Session, version: int) -> list[str]:
    """Return the names of the pictures on which a version decided, once an occurrence."""
    sql = "SELECT url FROM decisions d JOIN images i ON i.image_id = d.item_id WHERE d.version = ?"
    return sorted(row[0].rpartition("/")[2] for row in held.lake.query(sql, (version,)))


@pytest.mark.slow
def test_a_version_holds_the_last_reading_of_each_unit_and_keeps_what_is_no_longer_listed(tmp_path: Path):
    pages, more = tmp_path / "pages", tmp_path / "more"
    page(pages, "changed", "The old words of the page.", 1, 2)
    page(pages, "same", "This page stays as it is.", 3)
    page(pages, "gone", "This page will go away.", 4)
    page(pages, "moved", "This page will get a new name.", 5)
    page(pages, "torn", "This page will lose its picture.", 6)
    page(more, "other", "This source is named only once.", 7)
    with ingested(tmp_path, str(pages), str(more)) as held:
        assert version(held) == 1
        before = decided(held, 1)
        assert before == [f"{n}.jpg" for n in range(1, 8)]

    page(pages, "changed", "The new words of the page.", 2, 8, at=2)
    for name in ("gone.html", "1.jpg", "4.jpg", "6.jpg"):
        (pages / name).unlink()
    shutil.move(pages / "moved.html", pages / "renamed.html")
    with ingested(tmp_path) as held:
        assert version(held) == 2
        now = [2, 3, 4, 5, 5, 7, 8]
        assert decided(held, 2) == [f"{n}.jpg" for n in now]
        assert alive(held)[0] == {
            "The new words of the page.", "This page stays as it is.", "This page will go away.",
            "This page will get a new name.", "This page will lose its picture.", "This source is named only once.",
        }  # fmt: skip
        assert decided(held, 1) == before
        assert [note for note in held.notes if "no longer holds 2 units it held" in note and "gone.html" in note]
        assert held.lake.query("SELECT reason FROM quarantine") == [("missing",)]
