import gzip
import io
import zlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pairmill.ops.fault import Fault
from pairmill.ops.read.source import Document, open_source
from tests.examples import examples
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, write

PAGE = (
    b"<title>T</title><base href='/img/'><p>Before.</p><img src=a.jpg alt='An a.'>"
    b"<p>After.</p><img src='//y.example/b.png'>"
)


def record(kind: str, url: str, block: bytes, content: str = "application/http; msgtype=response") -> bytes:
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{zlib.crc32(block)}>\r\nContent-Type: {content}\r\n"
        f"Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def response(url: str, body: bytes, kind: str, status: str = "200 OK", **fields: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", *(f"{k.replace('_', '-')}: {v}" for k, v in fields.items())]
    return record("response", url, "\r\n".join(lines).encode() + b"\r\n\r\n" + body)


RECORDS = [
    record("warcinfo", "", b"software: x\r\n", "application/warc-fields"),
    record("request", "https://x.example/p", b"GET / HTTP/1.1\r\n\r\n"),
    response("https://x.example/p", PAGE, "text/html; charset=utf-8"),
    response("https://x.example/img/a.jpg", jpeg("red"), "image/jpeg"),
    response("https://x.example/gone", b"<p>Gone", "text/html", "404 Not Found"),
    response("https://x.example/q", b"<p>Second page.", "text/html"),
]
PACKED = [gzip.compress(each, mtime=0) for each in RECORDS]
FORMS = {
    "x.warc": b"".join(RECORDS),
    "x.warc.gz": b"".join(PACKED),
    "whole.warc.gz": gzip.compress(b"".join(RECORDS)),
}


@pytest.mark.parametrize("name", FORMS)
def test_pages_with_the_pictures_that_the_same_file_holds(tmp_path, name):
    source = open_source(str(write(tmp_path, {name: FORMS[name]})))
    first, second = documents(source)
    assert [fault.reason for fault in faults(source)] == ["http_status"]
    assert outline(first) == ["Before.", "<a.jpg>", "After.", "<missing>"]
    assert (pictures(first)[0].data, pictures(first)[0].alt_text) == (jpeg("red"), "An a.")
    assert [p.url for p in pictures(first)] == ["https://x.example/img/a.jpg", "https://y.example/b.png"]
    assert pictures(first)[1].fault.detail == "remote image: not fetched"
    assert first.title == "T" and outline(second) == ["Second page."]
    assert (first.metadata["url"], first.metadata["crawled"]) == ("https://x.example/p", "2024-05-01T00:00:00Z")


def test_a_file_of_the_warcio_library_is_read(tmp_path):
    with open(tmp_path / "x.warc.gz", "wb") as out:
        writer = WARCWriter(out, gzip=True)
        for url, kind, body in [
            ("https://x.example/p", "text/html", PAGE),
            ("https://x.example/img/a.jpg", "image/jpeg", jpeg("red")),
        ]:
            head = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
            writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head))
    (document,) = documents(open_source(str(tmp_path)))
    assert pictures(document)[0].data == jpeg("red")


def test_the_charset_of_the_header_counts_for_answers_and_for_resources(tmp_path):
    body, kind = "<meta charset=koi8-r><p>Красная площадь".encode("cp1251"), "text/html; charset=windows-1251"
    records = response("https://x.example/", body, kind), record("resource", "https://x.example/r", body, kind)
    assert [
        outline(found) for found in documents(open_source(str(write(tmp_path, {"x.warc": b"".join(records)}))))
    ] == [["Красная площадь"]] * 2


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        (gzip.compress(PAGE), {"Content_Encoding": "gzip"}),
        (zlib.compress(PAGE), {"Content_Encoding": "deflate"}),
        (b"5\r\n" + PAGE[:5] + b"\r\n%x;x=y\r\n" % len(PAGE[5:]) + PAGE[5:] + b"\r\n0\r\n\r\n",
         {"Transfer_Encoding": "chunked"}),
        (PAGE, {"Transfer_Encoding": "chunked", "Content_Encoding": "gzip"}),
    ],
)  # fmt: skip
def test_encodings_of_the_transfer_are_undone_or_were_undone_already(tmp_path, body, fields):
    write(tmp_path, {"x.warc": response("https://x.example/p", body, "text/html", **fields)})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document)[0] == "Before."


def test_a_page_that_unpacks_without_end_is_a_bomb_and_its_neighbours_live(tmp_path):
    bomb = response("https://x.example/p", gzip.compress(bytes(40 * 2**20)), "text/html", Content_Encoding="gzip")
    source = open_source(str(write(tmp_path, {"x.warc": bomb + RECORDS[5]})))
    assert [found.reason if isinstance(found, Fault) else "good" for found in everything(source)] == ["bomb", "good"]


@pytest.mark.parametrize("name", ["x.warc", "x.warc.gz"])
@examples(30)
@given(share=st.floats(0.75, 0.999))
@example(share=len(b"".join(PACKED[:-1])) / len(b"".join(PACKED)) + 1e-9)
def test_of_a_cut_file_what_came_before_the_cut_is_kept(tmp_path_factory, name, share):
    data = FORMS[name][: int(len(FORMS[name]) * share)]
    source = open_source(str(write(tmp_path_factory.mktemp("cut"), {name: data})))
    found = documents(source)
    assert found and outline(found[0])[0] == "Before."
    assert all(fault.reason in ("truncated", "bad_record", "http_status") for fault in faults(source))
    # A file that is cut between two records, packed each by itself or not at all, cannot be told from a shorter one.
    whole = tuple(each.rstrip() for each in RECORDS) if name == "x.warc" else tuple(PACKED)
    between = (data.rstrip() if name == "x.warc" else data).endswith(whole)
    assert "T" in {document.title for document in found} and (len(found) == 2 or faults(source) or between)


def test_a_picture_that_no_page_shows_is_a_document_of_its_own(tmp_path):
    write(tmp_path, {"x.warc": RECORDS[3] + RECORDS[5]})
    page, picture = documents(open_source(str(tmp_path)))
    assert (outline(page), pictures(picture)[0].url) == (["Second page."], "https://x.example/img/a.jpg")
    assert picture.metadata["crawled"] == "2024-05-01T00:00:00Z"


@examples(60)
@given(junk=st.binary(max_size=300), at=st.integers(0, 2000))
def test_junk_anywhere_raises_nothing(tmp_path_factory, junk, at):
    data = FORMS["x.warc"]
    source = open_source(str(write(tmp_path_factory.mktemp("junk"), {"x.warc": data[:at] + junk + data[at + 50 :]})))
    assert all(isinstance(found, Document | Fault) for found in everything(source))
