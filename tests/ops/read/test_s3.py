import pickle
import socket

import pytest

from pairmill.ops.fault import Fault
from pairmill.ops.read.places import s3, tree
from pairmill.ops.read.source import Document, SourceError, open_source
from tests.worlds.parallel_lists import lists
from tests.worlds.s3 import bucket, fresh_filesystem, server, upload
from tests.worlds.samples import documents, everything, jpeg, outline, pictures, table_bytes, write

__all__ = ["bucket", "server"]  # fixtures


def site(folder):
    return write(
        folder,
        {
            "html/page.html": "1<img src='a b.jpg'><img src=gone.jpg><img src='../../../up.jpg'><img src=nil.jpg>",
            "html/blank.html": "",
            "html/a b.jpg": jpeg(),
            "html/nil.jpg": b"",
            "photos/ü.jpg": jpeg("blue"),
            "photos/ü.txt": "caption",
            "t.parquet": table_bytes({"images": lists([None], [None]), "texts": lists(["x"], ["y"])}, row_group_size=1),
            "LICENSE": "text",
            ".hidden.jpg": jpeg(),
        },
    )


def shape(found):
    return outline(found) if isinstance(found, Document) else found.reason


def test_a_key_with_two_slashes_in_a_row_is_read_by_its_own_name(bucket):
    for key, colour in (("dd/x.jpg", "red"), ("dd//x.jpg", "blue"), ("dd/sub//x.jpg", "green")):
        bucket.put_object(Bucket="corpus", Key=key, Body=jpeg(colour))
    source = open_source("s3://corpus/dd")
    assert sorted(unit.uri for unit in source.units()) == [
        "s3://corpus/dd//x.jpg",
        "s3://corpus/dd/sub//x.jpg",
        "s3://corpus/dd/x.jpg",
    ]
    assert {picture.data for each in documents(source) for picture in pictures(each)} == {
        jpeg(colour) for colour in ("red", "blue", "green")
    }


def test_a_prefix_gives_the_same_documents_as_the_same_folder(tmp_path, bucket):
    upload(bucket, site(tmp_path), "deep/prefix/")
    local, remote = open_source(str(tmp_path)), open_source("s3://corpus/deep/prefix")
    assert [shape(found) for found in everything(remote)] == [shape(found) for found in everything(local)]
    moved = [unit.uri.replace("s3://corpus/deep/prefix", str(tmp_path)) for unit in remote.units()]
    assert moved == [unit.uri for unit in local.units()]
    assert [unit.size for unit in remote.units()] == [unit.size for unit in local.units()]
    assert [fault.item for fault in remote.ignored()] == ["s3://corpus/deep/prefix/.hidden.jpg"]


def test_a_trailing_slash_and_a_whole_bucket_are_prefixes_too(tmp_path, bucket):
    upload(bucket, site(tmp_path), "x/")
    texts = [shape(found) for found in everything(open_source(str(tmp_path)))]
    for uri in ("s3://corpus/x/", "s3://corpus", "s3://corpus/"):
        assert [shape(found) for found in everything(open_source(uri))] == texts
        assert open_source(uri).uri == uri.rstrip("/")


def test_a_prefix_is_a_folder_and_not_the_start_of_a_name(tmp_path, bucket):
    upload(bucket, write(tmp_path, {"site/a.html": "a", "site-old/b.html": "b"}), "")
    assert [shape(found) for found in everything(open_source("s3://corpus/site"))] == [["a"]]


def test_one_key_is_a_source(tmp_path, bucket):
    upload(bucket, site(tmp_path), "")
    source = open_source("s3://corpus/html/page.html")
    assert source.uri == "s3://corpus/html/page.html"
    (document,) = documents(source)
    assert outline(document) == ["1", "<a b.jpg>", "<missing>", "<unsafe_path>", "<empty>"]


def test_only_a_rewritten_object_has_another_etag(tmp_path, bucket):
    upload(bucket, site(tmp_path), "")
    before = {unit.uri: unit.etag for unit in open_source("s3://corpus").units()}
    upload(bucket, tmp_path, "")  # the same bytes: on S3 the same ETag
    assert {unit.uri: unit.etag for unit in open_source("s3://corpus").units()} == before
    bucket.put_object(Bucket="corpus", Key="html/page.html", Body=b"new")
    after = {unit.uri: unit.etag for unit in open_source("s3://corpus").units()}
    assert [uri for uri in before if before[uri] != after[uri]] == ["s3://corpus/html/page.html"]


def test_a_source_in_s3_pickles_without_its_connection(tmp_path, bucket):
    upload(bucket, site(tmp_path), "")
    source = open_source("s3://corpus")
    units = source.units()
    copy = pickle.loads(pickle.dumps(source))
    assert [shape(found) for unit in units for found in copy.read(unit)] == [
        shape(found) for found in everything(source)
    ]


def test_an_object_too_large_or_gone_since_the_listing_is_a_fault(tmp_path, bucket, monkeypatch):
    upload(bucket, write(tmp_path, {"a.html": "<p>" + "x" * 100, "b.html": "y"}), "")
    source = open_source("s3://corpus")
    units = source.units()
    bucket.delete_object(Bucket="corpus", Key="b.html")
    monkeypatch.setattr(s3, "MAX_BYTES", 50)
    monkeypatch.setattr(tree, "MAX_BYTES", 50)
    assert [found.reason for found in everything(source, units) if isinstance(found, Fault)] == ["too_large", "missing"]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("s3://no-such-bucket/x", "no such bucket or prefix"),
        ("s3://corpus/nothing", "is empty; give a folder, a file or a prefix"),
    ],
)
def test_a_bucket_or_prefix_that_is_not_there_says_so(bucket, uri, message):
    with pytest.raises(SourceError, match=message):
        open_source(uri).units()


def test_missing_credentials_name_the_variables_to_set(bucket, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    fresh_filesystem()
    with pytest.raises(SourceError, match="no S3 credentials; set AWS_ACCESS_KEY_ID"):
        open_source("s3://corpus").units()


def test_a_place_where_nothing_listens_is_told(bucket, monkeypatch):
    monkeypatch.setattr(s3, "ATTEMPTS", 2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    fresh_filesystem()
    with pytest.raises(SourceError, match=r"cannot be reached or refuses .*check AWS_ENDPOINT_URL"):
        open_source("s3://corpus").units()


def test_a_place_that_accepts_and_never_answers_is_given_up(bucket, monkeypatch):
    monkeypatch.setattr(s3, "READ_SECONDS", 0.1)
    monkeypatch.setattr(s3, "ATTEMPTS", 2)  # each waits for longer
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen(16)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        fresh_filesystem()
        with pytest.raises(SourceError, match="cannot be reached or refuses"):
            open_source("s3://corpus").units()


def test_lakes_and_exports_in_a_bucket_are_not_read_and_what_is_hidden_has_its_reason(bucket, tmp_path):
    new = {"new/.pairmill": "x", "new/more/a.jpg": jpeg(), "(1)/.pairmill": "x", "(1)/(a).jpg": jpeg()}
    copied = {"old/catalog.sqlite": b"x", "old/data/main/images/a.parquet": b"x", "old/a.jpg": jpeg()}
    hidden = {".git/a.jpg": jpeg(), "photos/.hidden.jpg": jpeg()}
    theirs = {"photos/lake.jpg": jpeg(), "photos/lake.txt": "A lake.", "nil/lake.txt": b"", "nil/lake.jpg": jpeg()}
    upload(bucket, write(tmp_path, {**new, **copied, **hidden, **theirs}), "mixed/")
    source = open_source("s3://corpus/mixed")
    assert [unit.uri for unit in source.units()] == [
        "s3://corpus/mixed/nil/lake.jpg",
        "s3://corpus/mixed/photos/lake.jpg",
    ]
    left = {fault.item.removeprefix("s3://corpus/mixed/"): fault.reason for fault in source.ignored()}
    assert left == dict.fromkeys(("(1)", ".git", "new", "old", "photos/.hidden.jpg"), "left_out")
    for name in ("new", "old"):
        with pytest.raises(SourceError, match="is a lake or an export of Pairmill"):
            open_source(f"s3://corpus/mixed/{name}").units()
