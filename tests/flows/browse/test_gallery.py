"""A gallery shows each picture once, in order, and every number on it is the lake's."""

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.image_vectors import image_vectors
from pairmill.tasks.release.gallery.thumbnails import ThumbnailCache
from tests.worlds.browsed import Pages, browsed, ids, rows, text
from tests.worlds.published import published
from tests.worlds.shared import copied, opened_new

OF = "dataset = 'demo' AND version = 1"


def all_ids(pages: Pages, query: str) -> list[str]:
    """Return the ids of all pages of a gallery, as a browser without scripts walks through them."""
    found, address = [], f"/gallery?{query}"
    while address:
        page = pages.gallery(address)
        found += ids(page)
        address = next(iter(page.xpath("//a[@class='more']/@href")), "")
    return found


def total(pages: Pages, query: str) -> int:
    return int(text(pages.gallery(f"/gallery?{query}").find_class("count")[0].find("b")).replace(",", ""))


def test_the_numbers_of_kept_and_dropped_pictures_are_the_lakes(pages: Pages, lake: Path):
    page = pages.gallery("/gallery?dataset=demo@1")
    chips = [text(chip).rsplit(" ", 1) for chip in page.find_class("chips")[0].findall("a")]
    decided = dict(
        rows(lake, f"SELECT if(dropped_by = '', 'kept', dropped_by), count(*) FROM decisions WHERE {OF} GROUP BY 1")
    )
    assert {name: int(n) for name, n in chips} == {**decided, "all": sum(decided.values())}
    assert len(decided) > 3


@pytest.mark.parametrize("fate", ["kept", "dropped", "short_side", "duplicate"])
def test_a_gallery_by_fate_has_exactly_the_pictures_that_the_version_decided_so(pages: Pages, lake: Path, fate: str):
    where = {"kept": "dropped_by = ''", "dropped": "dropped_by <> ''"}.get(fate, f"dropped_by = '{fate}'")
    decided = [row[0] for row in rows(lake, f"SELECT item_id FROM decisions WHERE {OF} AND {where} ORDER BY 1")]
    assert all_ids(pages, f"dataset=demo@1&fate={fate}") == decided and decided
    assert total(pages, f"dataset=demo@1&fate={fate}") == len(decided)


def test_everything_is_each_picture_that_counts(pages: Pages, lake: Path):
    assert all_ids(pages, "dataset=") == [row[0] for row in rows(lake, "SELECT image_id FROM images ORDER BY 1")]


@pytest.mark.parametrize("column", ["sharpness", "best_similarity", "width"])
def test_pages_sorted_by_a_score_have_each_picture_once_and_those_without_a_score_last(
    pages: Pages, lake: Path, column: str
):
    scores = "images LEFT JOIN image_quality USING (sha256) LEFT JOIN image_similarity USING (sha256)"
    for order, query in (("ASC", ""), ("DESC", "&desc=1")):
        sql = f"SELECT image_id FROM {scores} ORDER BY {column} {order} NULLS LAST, image_id"
        assert all_ids(pages, f"dataset=demo@1&sort={column}{query}") == [row[0] for row in rows(lake, sql)]


@pytest.mark.parametrize(
    ("query", "where"),
    [
        (
            "where=" + quote("least(width, height) >= 100 and format <> 'png'"),
            "least(width, height) >= 100 AND format <> 'png'",
        ),
        ("score=width&low=120&high=200", "width BETWEEN 120 AND 200"),
        ("format=jpeg", "format = 'jpeg'"),
        ("score=&low=&high=&where=&cluster=&desc=", "true"),
    ],
)
def test_filters_count_what_sql_counts(pages: Pages, lake: Path, query: str, where: str):
    counted = rows(lake, f"SELECT count(*) FROM images WHERE {where}")[0][0]
    assert total(pages, f"dataset=demo@1&{query}") == counted and counted


def test_clusters_tags_and_statuses_filter(pages: Pages, lake: Path):
    page = pages.gallery("/gallery?dataset=demo@1")
    for name in ("cluster", "tag"):
        options = page.xpath(f"//select[@name='{name}']/option")[1:4]
        assert options
        for option in options:
            n = int(text(option).rsplit("· ", 1)[1])
            assert total(pages, f"dataset=demo@1&{name}={quote(option.get('value'))}") == n
    captioned = rows(
        lake, "SELECT count(*) FROM images WHERE sha256 IN (SELECT sha256 FROM captions WHERE status = 'ok')"
    )
    assert total(pages, "dataset=demo@1&status=ok") == captioned[0][0]


@pytest.mark.parametrize(
    "where", ["width", "nosuch > 1", "true; DROP TABLE images", "read_text('/etc/passwd') = ''", "(SELECT 1) = 1",
              "CAST(format AS INTEGER) = 1"]
)  # fmt: skip
def test_a_filter_that_is_no_rule_is_answered_with_its_fault_and_stays_to_be_mended(pages: Pages, where: str):
    pages.gallery("/gallery?dataset=demo@1")
    page = pages.page(f"/gallery?dataset=demo@1&where={quote(where)}", 400)
    assert len(text(page.find_class("fault")[0])) > 20
    assert page.xpath("string(//textarea[@name='where'])") == where


@pytest.mark.parametrize("query", ["sort=nosuch", "after=x,y", "cluster=x", "low=nan&score=width", "dataset=none"])
def test_an_address_that_makes_no_sense_is_refused_in_one_line(pages: Pages, query: str):
    pages.gallery("/gallery?dataset=demo@1")
    page = pages.page(f"/gallery?dataset=demo@1&{query}" if "dataset" not in query else f"/gallery?{query}", 400)
    assert text(page.get_element_by_id("main"))


def test_a_thumbnail_is_the_picture_made_small_and_not_stored_by_a_browser(pages: Pages, lake: Path):
    # A kept picture: one of the world's is cut off, and ids depend on where the world lies.
    sha256, width, height = rows(lake, "SELECT sha256, width, height FROM images SEMI JOIN pairs USING (image_id)")[0]
    answer = pages.client.get(f"/picture/small/{sha256}")
    with Image.open(io.BytesIO(answer.content)) as made:
        assert made.format == "JPEG" and max(made.size) <= 256
        assert abs(made.width / made.height - width / height) < 0.05
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["small/../../x", "small/" + "z" * 32, "huge/" + "0" * 32])
def test_no_other_file_is_served(pages: Pages, path: str):
    assert pages.client.get(f"/picture/{path}").status_code == 404
    assert pages.client.get("/static/../guard.py").status_code == 404


def test_a_picture_whose_bytes_are_not_in_the_lake_gets_a_sign(pages: Pages):
    answer = pages.client.get("/picture/small/" + "0" * 32)
    assert answer.status_code == 200 and answer.headers["content-type"] == "image/svg+xml"
    assert answer.headers["cache-control"] == "no-store"


def test_the_cache_of_thumbnails_is_bounded_and_drops_those_not_used_for_longest(small: Path):
    with create_or_open(small, read_only=True) as lake:
        shas = dict(lake.query("SELECT sha256, shard FROM image_content ORDER BY sha256"))
        cache = ThumbnailCache(lake)
        made = [cache.make({sha: shard}, "small")[sha] for sha, shard in shas.items()]
        paths = [path for path in made if isinstance(path, Path)]
        first, *_, last = paths
        bound = sum(path.stat().st_size for path in paths) - 1
        cache.find(next(iter(shas)), "small.jpg")
        ThumbnailCache(lake, most_bytes=bound).sweep()
        assert first.exists() and last.exists()
        assert 0 < sum(path.stat().st_size for path in paths if path.exists()) <= 0.9 * (bound + 1)


def file_of_everything(lake: Lake) -> Path:
    return gallery_file(lake, None)


def file_of_vectors(lake: Lake) -> Path:
    found = image_vectors(lake, None)
    assert found is not None
    return found.path


@pytest.mark.parametrize("make", [file_of_everything, file_of_vectors])
def test_a_file_that_another_process_removes_before_it_is_marked_as_used_is_made_again(
    lake: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Lake], Path]
):
    removed: list[Path] = []
    mark = os.utime

    def overtaken(path: Path, *given: object) -> None:
        if not removed:
            removed.append(path)
            path.unlink()
        mark(path, *given)  # pyright: ignore[reportCallIssue, reportArgumentType]

    with create_or_open(lake, read_only=True) as opened:
        made = make(opened)
        monkeypatch.setattr("os.utime", overtaken)
        assert make(opened) == made and made.stat().st_size > 0
    assert removed == [made]


def test_an_empty_lake_and_a_gallery_without_pictures_say_so(pages: Pages, tmp_path: Path):
    with create_or_open(tmp_path / "lake"):
        pass
    with browsed(tmp_path / "lake") as empty:
        assert "holds no pictures yet" in text(empty.gallery("/gallery"))
    assert "No picture fits" in text(pages.gallery("/gallery?dataset=demo@1&where=width%3C0"))


def test_a_picture_is_shown_while_ingest_has_not_yet_listed_the_contents(lake: Path, tmp_path: Path):
    with create_or_open(copied(lake, tmp_path / "lake")) as opened:
        shas = [sha for (sha,) in opened.query("SELECT sha256 FROM image_content ORDER BY sha256 LIMIT 3")]
        opened.execute("DELETE FROM image_content")
    shutil.rmtree(tmp_path / "lake/.browse", ignore_errors=True)
    with browsed(tmp_path / "lake") as pages:
        answers = [pages.client.get(f"/picture/small/{sha}") for sha in shas]
    assert [answer.headers["content-type"] for answer in answers] == ["image/jpeg"] * 3


def test_a_picture_has_its_page_while_ingest_has_not_yet_listed_the_contents(tmp_path: Path):
    image, document = "a" * 32, "d" * 32
    with opened_new(tmp_path / "lake") as lake:
        lake.execute(
            f"INSERT INTO documents BY NAME SELECT '{document}' AS document_id, 'f' AS source, 'f/p.html' AS uri"
        )
        lake.execute(
            f"INSERT INTO images BY NAME SELECT '{image}' AS image_id, 'b' || repeat('0', 31) AS sha256, "
            f"'{document}' AS document_id, 'f/p.jpg' AS url, 0 AS position, 0 AS commit"
        )
    with browsed(tmp_path / "lake") as pages:
        assert ids(pages.gallery("/gallery")) == [image]
        assert "Its document" in text(pages.page(f"/item/{image}"))


@pytest.mark.slow
def test_a_page_that_is_asked_for_while_a_removal_is_forgotten_keeps_no_former_gallery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    published(tmp_path / "lake")
    monkeypatch.setattr("pairmill.flows.browse.browsed_lake.LOOKED_SECONDS", 0.0)
    with browsed(tmp_path / "lake") as pages:
        assert pages.gallery("/gallery?dataset=small@1") is not None
        opened = pages.opened
        former = opened.gallery("small@1")
        opened.forgetting.insert(0, lambda: opened.gallery("small@1") and None)
        with create_or_open(tmp_path / "lake") as lake:
            lake.execute("INSERT INTO takedowns VALUES ('a removal', 'test', '{}', 99, now())")
        opened.forget_removed()
        assert former and opened.gallery("small@1", is_scroll=True) is not former


@pytest.mark.slow
def test_the_lake_is_read_again_after_a_run_has_committed(tmp_path: Path):
    published(tmp_path / "lake", pictures=9)
    with browsed(tmp_path / "lake") as pages:
        assert total(pages, "") == 9
        with create_or_open(tmp_path / "lake") as lake:
            lake.execute("BEGIN")
            other = "* REPLACE ('f' || image_id[2:] AS image_id, 99 AS commit)"
            lake.execute(f"INSERT INTO images BY NAME SELECT {other} FROM images LIMIT 1")
            assert len(ids(pages.gallery("/gallery"))) == 9  # while the other transaction is open
            lake.execute("INSERT INTO commits VALUES (99, 'run-2', 'ingest', now())")
            lake.execute("COMMIT")
            for _ in range(100):
                if total(pages, "") == 10:
                    break
        assert total(pages, "") == 10
        assert total(pages, "dataset=small@1") == 9


def test_a_sentence_has_a_page_of_its_pictures_its_pairs_its_document_and_its_rules(pages: Pages, lake: Path):
    pages.gallery("/gallery?dataset=demo@1")
    sql = "SELECT content, text1 FROM pairs JOIN sentences s ON s.text = text1 ORDER BY image_id LIMIT 1"
    content, said = rows(lake, sql)[0]
    page = pages.page(f"/sentence/{content}?dataset=demo@1")
    assert said in text(page.find(".//h1")) and "Taken: demo@1 has it in" in text(page.find(".//main"))
    of = f"WHERE content = '{content}'"
    texts = f"SELECT text FROM sentences {of}"
    places = " OR ".join(f"text{n} IN ({texts})" for n in (1, 2, 3))
    shown = f"SELECT image_id FROM pairs WHERE version = 1 AND ({places}) ORDER BY image_id LIMIT 20"
    using = [row[0] for row in rows(lake, shown)]
    candidates = rows(lake, f"SELECT image_id FROM match_candidates JOIN images USING (sha256) {of}")
    assert set(using) <= set(ids(page)) and {row[0] for row in candidates} & set(ids(page))
    assert page.xpath(f"//ol[@class='sentences']//a[@aria-current][contains(@href, '{content}')]")
    dropped = pages.page(f"/item/{using[0]}?dataset=demo@1").xpath("//li[.//span[@class='fate dropped']]/a/@href")
    assert "Dropped by" in text(pages.page(dropped[0]).find(".//main"))
    assert pages.client.get(f"/sentence/{'0' * 32}?dataset=demo@1").status_code == 404
