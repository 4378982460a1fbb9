"""Fetching as a step of a run: every address ends in a row, each occurrence in a picture, nothing is asked twice."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pairmill.catalog.pending import fetches
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.fetch import fetch, fetch_again
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run.place.progress import Progress
from pairmill.tasks.run.session import Session
from tests.worlds.shared import new_lake
from tests.worlds.web import Handler, Web, photograph, picture, redirect, status, web


@pytest.fixture
def server() -> Iterator[Web]:
    with web() as running:
        yield running


@contextmanager
def run(
    lake: Path, source: Path, allowed: str = "127.0.0.1/32", workers: int = 1, **settings: str
) -> Iterator[Session]:
    recipe = load_recipe("demo", settings or {"fetch.retries": "0"})
    compute = Compute.model_validate({"workers": workers, "allow_addresses": [allowed] if allowed else []})
    with session(recipe, [str(source)], str(new_lake(lake)), compute) as opened:
        yield opened


def url_list(folder: Path, urls: list[str]) -> Path:
    folder.mkdir(exist_ok=True)
    captions = [f"A caption of picture number {n}." for n in range(len(urls))]
    pq.write_table(pa.table({"url": urls, "caption": captions}), folder / "list.parquet")
    return folder


def with_exif() -> bytes:
    from io import BytesIO

    tags = Image.Exif()
    tags[0x010F] = "A camera"
    file = BytesIO()
    Image.new("RGB", (120, 80)).save(file, "JPEG", exif=tags)
    return file.getvalue()


@pytest.mark.slow
def test_however_many_workers_there_are_a_host_has_its_few_connections(server: Web, tmp_path: Path):
    data = photograph()

    def slowly(handler: Handler) -> None:
        time.sleep(0.02)
        handler.answer(200, data)

    server.manners["/a.jpg"] = slowly
    urls = [server.url(f"/a.jpg?{n}") for n in range(600)]  # three work items
    with run(tmp_path / "lake", url_list(tmp_path / "list", urls), workers=3, **{"fetch.per_host": "2"}) as held:
        ingest(held)
        fetch(held)
        assert held.lake.query("SELECT count(*) FROM fetched WHERE reason = ''") == [(600,)]
    assert server.most_open == 2


def test_every_address_ends_in_a_row_and_every_occurrence_in_a_picture(server: Web, tmp_path: Path):
    for n in range(30):
        server.manners[f"/{n}.jpg"] = picture(photograph(n % 20))
    server.manners["/camera.jpg"] = picture(with_exif(), Content_Type="image/jpeg")
    server.manners["/page.jpg"] = picture(b"<html>" * 200)
    server.manners["/down.jpg"] = status(503)
    names = [*(f"/{n}.jpg" for n in range(30)), "/camera.jpg", "/page.jpg", "/down.jpg", "/gone.jpg"]
    urls = [server.url(name) for name in names] * 2 + ["http://10.0.0.1/a.jpg"]
    with run(tmp_path / "lake", url_list(tmp_path / "list", urls)) as held:
        ingest(held)
        assert fetches.count_unfetched(held.lake) == 35
        fetch(held)
        assert fetches.count_unfetched(held.lake) == 0
        sql = "SELECT reason, http_status, passing, count(*) FROM fetched GROUP BY ALL ORDER BY ALL"
        assert held.lake.query(sql) == [
            ("", 200, False, 31),
            ("blocked_address", None, False, 1),
            ("http_status", 404, False, 1),
            ("http_status", 503, True, 1),
            ("not_an_image", 200, False, 1),
        ]
        quarantined = held.lake.query("SELECT item, reason, stage, source FROM quarantine ORDER BY item")
        assert [(item, reason) for item, reason, _, _ in quarantined] == sorted(
            [
                ("http://10.0.0.1/a.jpg", "blocked_address"),
                (server.url("/down.jpg"), "http_status"),
                (server.url("/gone.jpg"), "http_status"),
                (server.url("/page.jpg"), "not_an_image"),
            ]
        )
        assert {(stage, source) for _, _, stage, source in quarantined} == {("fetch", str(tmp_path / "list"))}
        images = held.lake.query("SELECT image_id, document_id, position, sha256, url, alt_text FROM images")
        assert len(images) == 62 and all(row[5].startswith("A caption") for row in images)
        assert all(row[0] == text_id(row[1], str(row[2]), row[3]) for row in images)
        stored = dict(held.lake.query("SELECT sha256, bytes FROM payloads"))
        assert {content_id(data) for data in stored.values()} == set(stored) == {row[3] for row in images}
        assert held.lake.query("SELECT count(*) FROM image_content") == [(21,)]
        (about,) = held.lake.query("SELECT exif FROM fetched WHERE url LIKE '%camera%'")
        assert json.loads(about[0])["Make"] == "A camera"


@pytest.mark.slow
def test_a_second_run_asks_for_nothing_again_and_for_what_is_new_only(server: Web, tmp_path: Path):
    for n in range(6):
        server.manners[f"/{n}.jpg"] = picture(photograph(n))
    first = [server.url(f"/{n}.jpg") for n in range(4)]
    source = url_list(tmp_path / "list", first)
    with run(tmp_path / "lake", source) as held:
        ingest(held)
        fetch(held)
        assert held.counts["fetch"] == 1
        fetch(held)
        assert held.counts["fetch"] == 1
    (source / "more").mkdir()
    url_list(source / "more", [*first[2:], server.url("/4.jpg"), server.url("/5.jpg")])
    with run(tmp_path / "lake", source) as held:
        ingest(held)
        fetch(held)
        assert held.lake.query("SELECT count(*), count(DISTINCT sha256), count(DISTINCT image_id) FROM images") == [
            (8, 6, 8)
        ]
    assert set(server.asked.values()) == {1} and len(server.asked) == 6


@pytest.mark.slow
def test_only_what_failed_for_a_passing_reason_is_asked_again(server: Web, tmp_path: Path):
    server.manners["/good.jpg"] = picture(photograph())
    server.manners["/down.jpg"] = status(503)
    urls = [server.url(f"/{name}.jpg") for name in ("good", "down", "gone")]
    with run(tmp_path / "lake", url_list(tmp_path / "list", urls)) as held:
        ingest(held)
        fetch(held)
        server.manners["/down.jpg"] = picture(photograph(1))
        assert fetch_again(held) == 1
        assert dict(server.asked) == {"/good.jpg": 1, "/down.jpg": 2, "/gone.jpg": 1}
        assert held.lake.query("SELECT item FROM quarantine") == [(server.url("/gone.jpg"),)]
        assert held.lake.query("SELECT count(*) FROM images") == [(2,)]
        assert fetch_again(held) == 0


@pytest.mark.slow
def test_the_same_addresses_may_fail_again_and_again_and_answer_in_the_end(server: Web, tmp_path: Path):
    server.manners["/down.jpg"] = status(503)
    with run(tmp_path / "lake", url_list(tmp_path / "list", [server.url("/down.jpg")])) as held:
        ingest(held)
        fetch(held)
        for n in (2, 3):
            assert fetch_again(held) == 1
            assert held.lake.query("SELECT count(*) FROM fetches") == [(n,)]
            assert held.lake.query("SELECT reason FROM quarantine") == [("http_status",)]
        server.manners["/down.jpg"] = picture(photograph())
        assert fetch_again(held) == 1
        assert held.lake.query("SELECT count(*) FROM images") == [(1,)]
        assert held.lake.query("SELECT * FROM quarantine") == []
        assert fetch_again(held) == 0


@pytest.mark.slow
def test_a_fetch_that_is_killed_asks_again_only_for_the_portions_in_work(
    server: Web, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetches, "_PORTIONS", fetches._PORTIONS.replace(f"// {fetches.PORTION}", "// 4"))
    for n in range(40):
        server.manners[f"/{n}.jpg"] = picture(photograph(n))
    source = url_list(tmp_path / "list", [server.url(f"/{n}.jpg") for n in range(40)])

    class Killed(Exception):
        pass

    def die(at: Progress) -> None:
        if at.step == "fetch" and at.items == 5:
            raise Killed

    with pytest.raises(Killed), run(tmp_path / "lake", source) as held:
        held.progress, held.commit_files = die, 1
        ingest(held)
        fetch(held)
    with run(tmp_path / "lake", source) as held:
        waiting = fetches.pending_fetches(held.lake)
        assert len(waiting) == 5 and {len(item.keys) for item in waiting} == {4}
        fetch(held)
        assert held.lake.query("SELECT count(*), count(DISTINCT url) FROM fetches") == [(40, 40)]
        assert held.lake.query("SELECT count(*) FROM images") == [(40,)]
    # Two items wait in a worker's queue while one is in work.
    assert sum(server.asked.values()) <= 40 + 3 * 4


def test_a_server_that_does_not_speak_utf_8_costs_at_most_its_own_address(server: Web, tmp_path: Path):
    odd = "a\xff\x01b"  # the server sends each letter of a header as one byte
    server.manners["/1.jpg"] = picture(photograph(1))
    server.manners["/2.jpg"] = picture(photograph(2), ETag=odd, Content_Type=odd, Last_Modified=odd)
    server.manners["/3.jpg"] = picture(photograph(3), Content_Encoding=odd)
    server.manners["/4.jpg"] = redirect("http://[\xff")
    urls = [server.url(f"/{n}.jpg") for n in (1, 2, 3, 4)]
    with run(tmp_path / "lake", url_list(tmp_path / "list", urls)) as held:
        ingest(held)
        fetch(held)
        assert fetches.count_unfetched(held.lake) == 0
        columns = "reason, content_type, etag, last_modified, final_url"
        assert held.lake.query(f"SELECT {columns} FROM fetched ORDER BY url") == [
            ("", "", "", "", urls[0]),
            ("", "ab", "ab", "ab", urls[1]),
            ("undecodable", "", "", "", urls[2]),
            ("bad_record", "", "", "", "http://[%FF"),
        ]
        told = held.lake.query("SELECT item, detail FROM quarantine ORDER BY item")
        assert [item for item, _ in told] == urls[2:]
        assert r"packed as 'a\udcff\x01b'" in told[0][1]


def test_a_recipe_without_fetch_says_how_many_addresses_wait(tmp_path: Path):
    source = url_list(tmp_path / "list", ["http://203.0.113.1/a.jpg"])
    with run(tmp_path / "lake", source, fetch="null") as held:
        ingest(held)
        fetch(held)
        assert "fetch" not in held.counts
        assert any("1 address of" in note and "`fetch`" in note for note in held.notes)


def test_without_leave_loopback_is_not_contacted(server: Web, tmp_path: Path):
    server.manners["/a.jpg"] = picture(photograph())
    with run(tmp_path / "lake", url_list(tmp_path / "list", [server.url("/a.jpg")]), allowed="") as held:
        ingest(held)
        fetch(held)
        assert held.lake.query("SELECT reason FROM quarantine") == [("blocked_address",)]
    assert not server.asked
