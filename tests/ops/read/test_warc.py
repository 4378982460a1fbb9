import gzip
import io
import zlib

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pairmill.ops.fault import Fault
from pairmill.ops.read.formats.warc import _OpenWarc
from pairmill.ops.read.source import Document, open_source
from tests.examples import examples
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, write

TYPED = "application/http; msgtype=response"
PAGE = (
    b"<title>T</title><base href='/img/'><p>Before.</p><img src=a.jpg alt='An a.'>"
    b"<p>After.</p><img src='//y.example/b.png'>"
)


def record(kind: str, url: str, block: bytes, content: str = TYPED, **fields: str) -> bytes:
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    head = (
        f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {url}\r\nWARC-Date: 2024-05-01T00:00:00Z\r\n"
        f"WARC-Record-ID: <urn:uuid:{zlib.crc32(block)}>\r\nContent-Type: {content}\r\n"
        f"{more}Content-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def response(url: str, body: bytes, kind: str, status: str = "200 OK", **fields: str) -> bytes:
    said = {"Content_Type": kind} | fields if kind else fields
    lines = [f"HTTP/1.1 {status}", *(f"{k.replace('_', '-')}: {v}" for k, v in said.items())]
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


@pytest.mark.parametrize(
    ("link", "stored"),
    [
        ("my pic.jpg", "my%20pic.jpg"),
        ("my%20pic.jpg", "my pic.jpg"),
        ("größe.jpg?n=ö", "gr%C3%B6%c3%9fe.jpg?n=%C3%B6"),
        ("gro\u0308ße.jpg", "größe.jpg"),
        ("a%2Cb%28c%29.jpg", "a,b(c).jpg"),
        ("//bücher.example/a.jpg", "https://xn--bcher-kva.example:443/a.jpg"),
        ("HTTPS://X.Example:443/q/a.jpg#top", "a.jpg"),
        ("..\\q\\a.jpg", "a.jpg"),
    ],
)
def test_a_page_finds_its_picture_however_the_two_spell_its_address(tmp_path, link, stored):
    url = stored if stored.startswith("https:") else f"https://x.example/q/{stored}"
    page = f'<meta charset=utf-8><img src="{link}" alt="boat"><p>A boat.'.encode()
    records = response("https://x.example/q/", page, "text/html"), response(url, jpeg(), "image/jpeg")
    (document,) = documents(open_source(str(write(tmp_path, {"x.warc": b"".join(records)}))))
    assert [(found.data, found.url) for found in pictures(document)] == [(jpeg(), url)]


def test_the_charset_of_the_header_counts_for_answers_and_for_resources(tmp_path):
    body, kind = "<meta charset=koi8-r><p>Красная площадь".encode("cp1251"), "text/html; charset=windows-1251"
    records = response("https://x.example/", body, kind), record("resource", "https://x.example/r", body, kind)
    assert [
        outline(found) for found in documents(open_source(str(write(tmp_path, {"x.warc": b"".join(records)}))))
    ] == [["Красная площадь"]] * 2


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def brotli(data: bytes, codec: str = "brotli") -> bytes:
    return pa.compress(data, codec=codec, asbytes=True)


def zstd(data: bytes) -> bytes:
    return brotli(data, "zstd")


PACKINGS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    " Deflate": raw_deflate,
    "br": brotli,
    "zstd": zstd,
    "gzip, gzip": lambda data: gzip.compress(gzip.compress(data)),
    "gzip\r\nContent-Encoding: br": lambda data: brotli(gzip.compress(data)),
    "identity, gzip": lambda data: gzip.compress(gzip.compress(data)),
    "": gzip.compress,
}


@pytest.mark.parametrize("coding", PACKINGS)
def test_encodings_of_pages_and_pictures_are_undone_or_were_undone_already(tmp_path, coding):
    for pack in (PACKINGS[coding], bytes):
        page = response("https://x.example/p", pack(PAGE), "", Content_Encoding=coding)
        shown = response("https://x.example/img/a.jpg", pack(jpeg("red")), "text/html", Content_Encoding=coding)
        write(tmp_path, {"x.warc": page + shown})
        (document,) = everything(open_source(str(tmp_path)))
        assert isinstance(document, Document)
        assert (outline(document)[0], pictures(document)[0].data) == ("Before.", jpeg("red"))


@pytest.mark.parametrize("kind", ["", "application/octet-stream"])
@pytest.mark.parametrize("coding", ["gzip", "deflate", " Deflate", "gzip, gzip", "gzip\r\nContent-Encoding: br"])
def test_a_large_picture_is_told_by_its_content_however_it_is_packed(tmp_path, coding, kind):
    noise = Image.effect_noise((300, 200), 90)  # packs to no fewer bytes
    noise.save(out := io.BytesIO(), "jpeg")
    packed = PACKINGS[coding](out.getvalue())
    write(tmp_path, {"x.warc": response("https://x.example/a.jpg", packed, kind, Content_Encoding=coding)})
    (document,) = everything(open_source(str(tmp_path)))
    assert isinstance(document, Document) and pictures(document)[0].data == out.getvalue()


@pytest.mark.parametrize("body", [
    b"5\r\n" + PAGE[:5] + b"\r\n%x;x=y\r\n" % len(PAGE[5:]) + PAGE[5:] + b"\r\n0\r\n\r\n", PAGE,
])  # fmt: skip
def test_chunks_are_joined_or_were_joined_already(tmp_path, body):
    write(tmp_path, {"x.warc": response("https://x.example/p", body, "text/html", Transfer_Encoding="chunked")})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document)[0] == "Before."


@pytest.mark.parametrize(
    ("coding", "body", "reason", "said"),
    [
        ("br", brotli(PAGE)[:-9], "truncated", "'br'"),
        ("zstd", b"\0" + zstd(PAGE), "undecodable", "'zstd'"),
        ("gzip", gzip.compress(PAGE)[:-9], "truncated", "'gzip'"),
        ("deflate", b"\0" + raw_deflate(PAGE), "undecodable", "'deflate'"),
        ("compress", b"\x1f\x9d\x90" + PAGE, "undecodable", "'compress'"),
        ("br", brotli(bytes(2**26)), "bomb", "over"),
        ("zstd", zstd(bytes(2**26)), "bomb", "over"),
        ("deflate", raw_deflate(bytes(2**26)), "bomb", "over"),
        ("gzip, gzip", gzip.compress(gzip.compress(bytes(2**26))), "bomb", "over"),
        ("deflate," * 8000, raw_deflate(PAGE), "undecodable", "8000 content encodings; at most 3"),
    ],
)
def test_content_that_cannot_be_decoded_is_named_with_its_encoding(tmp_path, coding, body, reason, said):
    write(tmp_path, {"x.warc": response("https://x.example/p", body, "text/html", Content_Encoding=coding)})
    (fault,) = everything(open_source(str(tmp_path)))
    assert isinstance(fault, Fault) and fault.reason == reason and said in fault.detail


WHOLE = b"\r\n <!DOCTYPE html><html>" + PAGE
UTF_16 = ("<html>" + PAGE.decode()).encode("utf-16")


@pytest.mark.parametrize(
    ("kind", "body"),
    [("", PAGE), ("", b"<!-- x -->" + PAGE), ("unknown/unknown", b"<div>" + PAGE), ("*/*", b"\xef\xbb\xbf<P>" + PAGE)]
    + [(kind, WHOLE) for kind in ("text/plain", "application/octet-stream", "text/xml", "Text/HTML;x", "text/html")]
    + [("application/xml", b"<?xml version='1.0'?>\n<!DOCTYPE html>" + PAGE), ("", UTF_16), ("text/plain", UTF_16)],
)
def test_a_page_is_told_by_its_bytes_where_its_type_does_not_tell(tmp_path, kind, body):
    write(tmp_path, {"x.warc": response("https://x.example/p", body, kind)})
    (document,) = everything(open_source(str(tmp_path)))
    assert isinstance(document, Document) and "Before." in outline(document)


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("", b"wOFF\0\1", ["bad_record"]),
        ("application/unknown", b'{"a": 1}', ["bad_record"]),
        ("", b"", []),
        ("application/octet-stream", b"wOFF\0\1", []),
        ("text/plain", b"<p>A quotation of markup", []),
        ("text/xml", b"<?xml version='1.0'?><rss></rss>", []),
        ("text/css", b"<html>", []),
        ("text/html", jpeg("blue"), ["a picture"]),
        ("", jpeg("blue"), ["a picture"]),
        ("text/javascript", jpeg("blue"), ["a picture"]),
    ],
)
def test_what_is_neither_page_nor_picture_has_a_row_where_nothing_tells(tmp_path, kind, body, expected):
    write(tmp_path, {"x.warc": response("https://x.example/f", body, kind)})
    found = everything(open_source(str(tmp_path)))
    assert [each.reason if isinstance(each, Fault) else "a picture" for each in found] == expected


def test_an_answer_without_a_header_has_a_row_and_a_look_up_of_a_name_has_none(tmp_path):
    lookup = record("response", "dns:x.example", b"20240501000000\nx.example. 60 IN A 192.0.2.1\n", "text/dns")
    write(tmp_path, {"x.warc": lookup + record("response", "https://x.example/p", PAGE)})
    assert [fault.reason for fault in faults(open_source(str(tmp_path)))] == ["bad_record"]


A = "https://x.example/img/a.jpg"
GOOD = response(A, jpeg("red"), "image/jpeg")
CUT = record("response", A, b"HTTP/1.1 200 OK\r\n\r\n" + jpeg("blue")[:400], WARC_Truncated="length")
BAD = {
    "busy": response(A, b"later", "text/plain", "503 Busy"),
    "gone": response(A, b"<p>Gone", "image/jpeg", "404 Not Found"),
    "moved": response(A, b"", "", "302 Found", Location="https://y.example/"),
    "apology": response(A, b"<p>No hot links", "image/jpeg"),
    "empty": response(A, b"", "image/jpeg"),
    "cut": CUT,
    "damaged": response(A, b"\0", "image/jpeg", Content_Encoding="br"),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_of_several_records_of_one_address_the_good_one_counts(tmp_path, bad):
    for others in (RECORDS[2] + bad + GOOD, bad * 5 + GOOD + RECORDS[2], GOOD + bad + RECORDS[2]):
        write(tmp_path, {"x.warc": others})
        (document,) = documents(open_source(str(tmp_path)))
        assert pictures(document)[0].data == jpeg("red")


HELD = record("response", "https://y.example/b", b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n" + jpeg("red"),
              WARC_Payload_Digest="sha1:AB")  # fmt: skip
ID = HELD.partition(b"WARC-Record-ID: ")[2].partition(b"\r")[0].decode()


@pytest.mark.parametrize(
    "refers",
    [
        {"WARC_Refers_To_Target_URI": "https://y.example/b"},
        {"WARC_Refers_To_Target_URI": "<https://y.example/b>", "WARC_Payload_Digest": "sha1:ab"},
        {"WARC_Refers_To": ID},
        {"WARC_Payload_Digest": "sha1:AB"},
    ],
)
@pytest.mark.parametrize("block", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: image/jpeg\r\n\r\n"])
def test_a_revisit_has_the_content_that_it_refers_to(tmp_path, refers, block):
    revisit = record("revisit", A, block, **refers)
    for content in (revisit + RECORDS[2] + HELD, HELD + RECORDS[2] + revisit):
        write(tmp_path, {"x.warc": content})
        page, loose = documents(open_source(str(tmp_path)))
        assert pictures(page)[0].data == jpeg("red") and pictures(loose)[0].url == "https://y.example/b"
        assert not faults(open_source(str(tmp_path)))


def test_a_page_visited_under_two_addresses_is_two_documents_and_again_under_its_own_is_one(tmp_path):
    again = record("revisit", "https://x.example/p", b"HTTP/1.1 304 Not Modified\r\n\r\n")
    other = record("revisit", "https://x.example/img/q", b"", WARC_Refers_To_Target_URI="https://x.example/p")
    write(tmp_path, {"x.warc": RECORDS[2] + again + other})
    first, second = everything(open_source(str(tmp_path)))
    assert isinstance(first, Document) and isinstance(second, Document)
    assert outline(first)[0] == outline(second)[0] and first.uri != second.uri
    assert (second.metadata["url"], pictures(second)[0].url) == ("https://x.example/img/q", A)


@pytest.mark.parametrize(("kind", "n"), [("text/html", 1), ("image/jpeg", 1), ("", 1), ("text/css", 0)])
def test_a_revisit_of_content_in_another_file_has_a_row(tmp_path, kind, n):
    block = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode()
    refers = {"WARC_Refers_To_Target_URI": "https://z.example/", "WARC_Payload_Digest": "sha1:CD"}
    write(tmp_path, {"x.warc": RECORDS[2] + HELD + record("revisit", A, block, **refers)})
    source = open_source(str(tmp_path))
    assert [(f.reason, "z.example" in f.detail) for f in faults(source)] == [("missing", True)] * n
    assert pictures(documents(source)[0])[0].fault.detail == "remote image: not fetched"


NO = {"X_Robots_Tag": "otherbot: all\r\nX-Robots-Tag: noai"}


@pytest.mark.parametrize(
    ("page", "shown", "rows"),
    [
        (RECORDS[2], response(A, jpeg(), "image/jpeg", **NO), [A]),
        (response("https://x.example/p", PAGE, "text/html", **NO), GOOD, ["page", A]),
        (response("https://x.example/p", PAGE + b"<meta name=ROBOTS content='x, noai'>", ""), GOOD, ["page", A]),
        (response("https://x.example/p", PAGE + b"<meta name=pairmill content='noimageai'>", ""), GOOD, ["page", A]),
        (response("https://x.example/p", b"<meta name=robots content=index,follow>" + PAGE, "text/html"), GOOD, []),
        (response("https://x.example/p", b"<meta name=otherbot content=noai>" + PAGE, "text/html"), GOOD, []),
        (response("https://x.example/p", PAGE, "text/html", X_Robots_Tag="otherbot: noai"), GOOD, []),
        (b"", response(A, jpeg(), "image/jpeg", **NO), [A]),
    ],
)  # fmt: skip
def test_who_opts_out_in_a_header_or_a_page_is_heeded_as_in_a_fetch(tmp_path, page, shown, rows):
    write(tmp_path, {"x.warc": page + shown})
    found = list(everything(open_source(str(tmp_path))))
    refused = [(each.item if each.item == A else "page", each) for each in found if isinstance(each, Fault)]
    refused += [(p.url, p.fault) for each in found if isinstance(each, Document) for p in pictures(each) if p.fault]
    refused = [(item, fault.reason) for item, fault in refused if fault.detail != "remote image: not fetched"]
    assert refused == [(item, "opt_out") for item in rows]


def test_a_picture_on_a_page_that_opts_out_is_used_on_another_page(tmp_path):
    closed = response("https://x.example/img/c", b"<meta name=robots content=noai><img src=a.jpg>", "text/html")
    write(tmp_path, {"x.warc": closed + RECORDS[2] + GOOD})
    source = open_source(str(tmp_path))
    assert [fault.reason for fault in faults(source)] == ["opt_out"]
    assert pictures(documents(source)[0])[0].data == jpeg("red")


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


def test_embedded_pictures_of_a_page_that_opts_out_are_no_addresses(tmp_path):
    data = f"data:image/png;base64,{'A' * 5000}"
    page = f"<meta name=robots content=noai><img src='{data}'><img src=a.jpg><img src=' {data}'>".encode()
    write(tmp_path, {"x.warc": response("https://x.example/img/c", page, "text/html") + GOOD})
    with open(tmp_path / "x.warc", "rb") as file:
        opened = _OpenWarc(file, "x.warc")
        assert [found.reason for found in opened.documents() if isinstance(found, Fault)] == ["opt_out", "opt_out"]
    assert list(opened.refused) == ["https://x.example/img/a.jpg"]


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
