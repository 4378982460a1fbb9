"""Where readers say that a picture stands, it stands; and what became of the place since is told as it is."""

import gzip
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.referenced import Reference, contents
from pairmill.ops.read.source import Picture, SourceError, open_source
from tests.worlds.packed import sample, tar, zipped
from tests.worlds.parallel_lists import lists
from tests.worlds.s3 import bucket, fresh_filesystem, server, upload
from tests.worlds.s3_fast import quick
from tests.worlds.samples import documents, jpeg, pictures, table_bytes, write
from tests.worlds.unwell import unwell

__all__ = ["bucket", "quick", "server"]  # fixtures

RED, BLUE, GREEN = jpeg("red"), jpeg("blue"), jpeg("green")
PAGE = "<article><p>Words.</p><img src=a.jpg><img src='b%20c.jpg'></article>"
SITE: list[tuple[str, bytes | str]] = [("page.html", PAGE), ("a.jpg", RED), ("b c.jpg", BLUE)]
SAMPLES = [*sample("0001", RED, "one"), *sample("0002", BLUE, "two")]
LINE = '{"url": "x", "image_info": [{"image_name": "a.jpg", "matched_text_index": 0}], "text_list": ["A text."]}'
IN_PLACE = {
    "pages": {"site/page.html": PAGE, "site/a.jpg": RED, "site/b c.jpg": BLUE},
    "pictures": {"a.jpg": RED, "deep/b.jpg": BLUE, "a.txt": "one"},
    "tar of pages": {"site.tar": tar(SITE)},
    "tar of samples": {"00000.tar": tar(SAMPLES)},
    "table with files": {
        "t.parquet": table_bytes({"images": lists(["a.jpg", "b.jpg"]), "texts": lists([None, None])}),
        "a.jpg": RED,
        "b.jpg": BLUE,
    },
    "lines with files": {"docs_shard_0_v2.jsonl": LINE, "a.jpg": RED},
}
PACKED = {
    "embedded": {"page.html": "<p>x</p><img src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>"},
    "tar.gz": {"00000.tar.gz": gzip.compress(tar(SAMPLES))},
    "zip": {"site.zip": zipped(dict(SITE))},
    "stored zip": {"site.zip": zipped(dict(SITE), method=0)},
    "table of bytes": {"t.parquet": table_bytes({"image": pa.array([{"bytes": RED, "path": "a.jpg"}])})},
}


def read(source: str) -> list[Picture]:
    return [picture for each in documents(open_source(source)) for picture in pictures(each) if picture.data]


def referred(picture: Picture) -> Reference:
    assert picture.place is not None
    return Reference(content_id(picture.data), picture.place.uri, picture.place.offset, len(picture.data))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, list[Reference]]:
    """A folder of two pictures, and references to them."""
    folder = write(tmp_path / "photos", {"a.jpg": RED, "b.jpg": BLUE})
    return folder, [referred(picture) for picture in read(str(folder))]


@pytest.mark.parametrize("files", IN_PLACE.values(), ids=IN_PLACE.keys())
def test_a_picture_stands_where_its_reader_says_on_disk_and_on_s3(files: dict, tmp_path: Path, bucket):
    upload(bucket, write(tmp_path, files), "some/prefix/")
    for source in (str(tmp_path), "s3://corpus/some/prefix"):
        found = read(source)
        assert {picture.data for picture in found} <= {RED, BLUE} and found
        assert contents([referred(picture) for picture in found]) == [picture.data for picture in found]
        assert all(picture.place and picture.place.uri.startswith(source) for picture in found)


@pytest.mark.parametrize("files", PACKED.values(), ids=PACKED.keys())
def test_what_is_packed_stands_nowhere(files: dict, tmp_path: Path):
    found = read(str(write(tmp_path, files)))
    assert found and [picture.place for picture in found] == [None] * len(found)


def test_a_lost_or_changed_picture_is_missing_and_costs_no_other(pair):
    folder, references = pair
    (folder / "a.jpg").unlink()
    lost, kept = contents(references)
    assert isinstance(lost, Fault) and (lost.item, lost.reason) == (content_id(RED), "missing")
    assert str(folder / "a.jpg") in lost.detail and kept == BLUE
    for others in (GREEN, RED[:-1], RED[:-1] + b"?", b""):
        (folder / "a.jpg").write_bytes(others)
        changed, kept = contents(references)
        assert isinstance(changed, Fault) and "other bytes" in changed.detail and kept == BLUE
    (folder / "a.jpg").write_bytes(RED)
    assert contents(references) == [RED, BLUE]


def test_a_source_that_is_not_there_is_no_loss_of_its_pictures(pair):
    """Nor is one that is empty, as where a disk is not mounted; with any file in it, the others were deleted."""
    folder, references = pair
    shutil.rmtree(folder)
    for _ in range(2):
        found = contents(references)
        assert [type(each) for each in found] == [SourceError] * 2
        assert re.search(r"photos.*mount or restore it and run again.*any file", str(found[0]))
        folder.mkdir(exist_ok=True)
    (folder / "any file").touch()
    assert [each.reason for each in contents(references) if isinstance(each, Fault)] == ["missing"] * 2


def test_a_folder_below_the_source_may_go(tmp_path: Path):
    source = write(tmp_path / "photos", {"a.jpg": RED, "deep/down/b.jpg": BLUE})
    references = [referred(picture) for picture in read(str(source))]
    shutil.rmtree(source / "deep")
    kept, lost = contents(references)
    assert kept == RED and isinstance(lost, Fault) and f"'{source}/deep/down/b.jpg'" in lost.detail


def test_lost_changed_and_shortened_objects_are_missing(bucket):
    for name in ("a", "b", "c", "d"):
        bucket.put_object(Bucket="corpus", Key=f"{name}.jpg", Body=RED + name.encode())
    references = [
        Reference(content_id(RED + name.encode()), f"s3://corpus/{name}.jpg", 0, len(RED) + 1) for name in "abcd"
    ]
    assert contents(references) == [RED + name.encode() for name in "abcd"]
    bucket.delete_object(Bucket="corpus", Key="a.jpg")
    bucket.put_object(Bucket="corpus", Key="b.jpg", Body=BLUE)
    bucket.put_object(Bucket="corpus", Key="c.jpg", Body=b"")
    found = contents(references)
    assert [each.reason for each in found[:3] if isinstance(each, Fault)] == ["missing"] * 3
    assert found[3] == RED + b"d"
    beyond = Reference(content_id(RED), "s3://corpus/d.jpg", 10 * len(RED), len(RED))
    assert isinstance(contents([beyond])[0], Fault)


def test_a_bucket_that_is_not_there_is_no_loss_of_its_pictures(bucket):
    (found,) = contents([Reference(content_id(RED), "s3://nobucket/a.jpg", 0, len(RED))])
    assert isinstance(found, SourceError) and re.search(r"nobucket.*run again", str(found))


def test_an_unwell_s3_is_asked_again(server, bucket, quick, monkeypatch):
    data = {f"{n:02}.jpg": RED + bytes([n]) for n in range(40)}
    for name, body in data.items():
        bucket.put_object(Bucket="corpus", Key=name, Body=body)
    with unwell(server, share=0.3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        references = [Reference(content_id(b), f"s3://corpus/{name}", 0, len(b)) for name, b in data.items()]
        assert contents(references) == list(data.values())
        assert proxy.n_failed > 0
    fresh_filesystem()
