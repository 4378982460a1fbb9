"""Ingest from S3 that fails, falls ill for good or changes while it is listed: nothing is lost, the rest is told."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.ids import content_id
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.flows.user_error import user_message
from pairmill.tasks.collect.ingest import ingest
from tests.worlds.line import rows
from tests.worlds.s3 import bucket, fresh_filesystem, server
from tests.worlds.s3_fast import fill, quick
from tests.worlds.samples import jpeg
from tests.worlds.shared import new_lake
from tests.worlds.unwell import Unwell, unwell

__all__ = ["bucket", "quick", "server"]  # fixtures

pytestmark = pytest.mark.slow
N, PAGE = 60, 20
READ = (
    "SELECT image_id, document_id, url, sha256, alt_text FROM images ORDER BY ALL",
    "SELECT document_id, uri, unit FROM documents ORDER BY ALL",
    "SELECT text FROM sentences ORDER BY ALL",
    "SELECT item, reason FROM quarantine ORDER BY ALL",
    "SELECT sha256, length FROM payloads ORDER BY ALL",
)


def name(n: int) -> str:
    return f"{n % 3}/{n:03}.jpg"


def objects() -> dict[str, bytes]:
    pictures = {name(n): jpeg(f"#{n:06x}") for n in range(N)}
    return pictures | {"0/003.txt": b"A caption.", "2/none.jpg": b"no picture", "list.csv": b"url\nhttps://x.example/1"}


@pytest.fixture
def ill(server, bucket, quick, monkeypatch: pytest.MonkeyPatch) -> Iterator[Unwell]:
    fill(objects())
    with unwell(server, share=0) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        yield proxy
    fresh_filesystem()


def ingested(lake: Path) -> list[list[tuple]]:
    new_lake(lake)
    recipe = load_recipe("demo", {"ingest.documents_per_shard": "16"})
    with session(recipe, ["s3://corpus"], str(lake), Compute(workers=1)) as opened:  # pyright: ignore[reportCallIssue]
        opened.commit_files = 1
        ingest(opened)
    return [rows(lake, sql) for sql in READ]


def test_what_fails_now_and_then_is_asked_again_and_the_same_rows_come_of_it(ill: Unwell, tmp_path: Path):
    whole = ingested(tmp_path / "whole")
    assert len(whole[0]) == N
    ill.share = 0.1
    assert ingested(tmp_path / "lake") == whole and ill.n_failed > 2


@pytest.mark.parametrize("kinds", [["reset"], pytest.param(["503", "cut"], marks=pytest.mark.full)])
def test_a_source_that_falls_ill_for_good_ends_the_run_in_one_line_and_the_next_goes_on(
    kinds: list[str], ill: Unwell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = ingested(tmp_path / "whole")
    n_requests = ill.done.total()
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    for n, kind in enumerate(kinds):
        monkeypatch.setattr("tests.worlds.unwell.ILLS", (kind,))
        fresh_filesystem()
        ill.done.clear()
        ill.share, ill.after = 1, random.Random(kind).randrange(n_requests // 2, n_requests - 2)
        with pytest.raises(Exception, match="S3") as told:
            ingested(tmp_path / str(n))
        said = user_message(told.value)
        assert said and "\n" not in said and ("run again" in said or "check AWS_ENDPOINT_URL" in said)
        assert [row for row in rows(tmp_path / str(n), READ[3]) if row not in whole[3]] == []
        ill.share = 0
        assert ingested(tmp_path / str(n)) == whole


def test_a_listing_that_changes_between_two_pages_loses_nothing(ill: Unwell, bucket, tmp_path: Path):
    """What is gone when it is read is in quarantine; what comes behind the listing's back is found by the next run."""
    held, second_pages = objects(), []

    def put(key: str, data: bytes) -> None:
        held[key] = data
        bucket.put_object(Bucket="corpus", Key=key, Body=data)

    def change(page: int) -> None:
        second_pages.append(page == 2)
        if page != 2 or sum(second_pages) != 2:  # it is listed once to see that something is there
            return
        for key in (name(0), name(N - 1)):  # of the first page, and of one to come
            del held[key]
            bucket.delete_object(Bucket="corpus", Key=key)
        put("0/000-new.jpg", jpeg("red", size=(9, 9)))
        put("2/new.jpg", jpeg("blue", size=(9, 8)))
        put(name(3), jpeg("green", size=(9, 7)))

    ill.page, ill.before_page = PAGE, change
    ingested(tmp_path / "lake")
    assert "0/000-new.jpg" in held
    found = ingested(tmp_path / "lake")
    read = {(url, sha256) for _, _, url, sha256, _ in found[0]}
    assert {(f"s3://corpus/{key}", content_id(data)) for key, data in held.items() if data[:2] == b"\xff\xd8"} <= read
    fresh = {(url, sha256) for _, _, url, sha256, _ in ingested(tmp_path / "fresh")[0]}
    assert read - fresh <= {(f"s3://corpus/{key}", content_id(objects()[key])) for key in (name(0), name(3))}
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        missing = lake.query("SELECT item FROM quarantine WHERE reason = 'missing'")
    assert missing == [(f"s3://corpus/{name(0)}",)]
