"""Alt text, licence, source address, sha256 and crawl date that came with a picture are kept, whatever the format."""

import io
import json

import pyarrow as pa
import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pairmill.ops.read.source import open_source
from tests.worlds.packed import tar, zipped
from tests.worlds.samples import documents, jpeg, pictures, table_bytes, write
from tests.worlds.text_tables import jsonl, separated

ALT, LICENCE, URL = "A lighthouse at dusk.", "https://creativecommons.org/licenses/by/4.0/", "https://x.example/a.jpg"
SHA, DATE = "9f" * 32, "2024-05-01T10:20:30Z"
ROW = {"url": URL, "caption": ALT, "license": LICENCE, "sha256": SHA, "crawled": DATE}
ABOUT = {name: ROW[name] for name in ("license", "sha256", "crawled")}
PAGE = (
    f"<html><head><link rel=canonical href='{URL}'><meta name=date content='{DATE}'></head>"
    f"<body><img src=a.jpg alt='{ALT}'><p>Text.</p><a rel='license noopener' href='{LICENCE}'>CC BY</a>"
)


def column(value: object) -> pa.Array:
    return pa.array([value])


def warc() -> bytes:
    """By the library that archives use to write them."""
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    for url, kind, body in [(URL, "image/jpeg", jpeg()), ("https://x.example/", "text/html", PAGE.encode())]:
        head = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
        record = writer.create_warc_record(
            url, "response", payload=io.BytesIO(body), http_headers=head, warc_headers_dict={"WARC-Date": DATE}
        )
        writer.write_record(record)
    return out.getvalue()


def obelics(said: object) -> bytes:
    strings = pa.list_(pa.string())
    return table_bytes(
        {
            "images": pa.array([[URL, None]], strings),
            "texts": pa.array([[None, "T."]], strings),
            "image_bytes": pa.array([[jpeg(), None]], pa.list_(pa.binary())),
            "metadata": column(json.dumps([said, None])),
            "general_metadata": column(json.dumps({"url": "https://x.example/", "license": LICENCE})),
        }
    )


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
FLAT = {name: column(value) for name, value in ROW.items()}
INFO = {"image_name": "a.jpg", "raw_url": URL, "matched_text_index": 0, "alt_text": ALT, **ABOUT}
MINT = {"texts": [None, "T."], "images": [URL, None], "image_metadata": [{"alt_text": ALT, **ABOUT}], "url": URL}
FORMATS = {
    "html_folder": {"p.html": PAGE, "a.jpg": jpeg()},
    "html_archive": {"s.zip": zipped({"p.html": PAGE, "a.jpg": jpeg()})},
    "image_folder": {"a.jpg": jpeg(), "a.txt": ALT, "a.json": json.dumps(ROW)},
    "image_folder json": {"a.jpg": jpeg(), "a.json": json.dumps(ROW)},
    "webdataset": {"0.tar": tar([("k.jpg", jpeg()), ("k.txt", ALT), ("k.json", json.dumps(ROW))])},
    "webdataset sidecar": {"0.tar": tar([("k.jpg", jpeg())]), "0.parquet": table_bytes({"key": column("k"), **FLAT})},
    "webdataset interleaved": {"0.tar": tar([("k.json", json.dumps(MINT))])},
    "obelics": {"o.parquet": obelics({"alt_text": ALT, "src": URL, **ABOUT})},
    "mmc4": {"m.jsonl": json.dumps({"text_list": ["T."], "image_info": [INFO]}), "a.jpg": jpeg()},
    "image_table": {"i.parquet": table_bytes({"image": pa.array([{"bytes": jpeg(), "path": "a"}], STRUCT), **FLAT})},
    "image_table flat": {"i.parquet": table_bytes({"jpg": column(jpeg()), **FLAT})},
    "image_table digest": {
        "i.parquet": table_bytes({"jpg": column(jpeg()), **FLAT, "sha256": column(bytes.fromhex(SHA))})
    },
    "url_list parquet": {"u.parquet": table_bytes(FLAT)},
    "url_list csv": {"u.csv": separated([ROW], ",")},
    "url_list tsv": {"u.tsv": separated([ROW], "\t")},
    "url_list jsonl": {"u.jsonl": jsonl([ROW])},
    "realsyn": {"r.parquet": table_bytes({"raw_image_url": column(URL), "text1": column("T."), **FLAT})},
}
# A page has no place for its pictures' digests; RealSyn's release none for alt texts.
WITHOUT = {"html_folder": {SHA}, "html_archive": {SHA}, "realsyn": {ALT}}


@pytest.mark.parametrize("name", FORMATS)
def test_what_came_along_is_kept(tmp_path, name):
    source = open_source(str(write(tmp_path, FORMATS[name])))
    assert {unit.format for unit in source.units()} == {name.split()[0]}
    (document,) = documents(source)
    (picture,) = pictures(document)
    kept = json.dumps(document.metadata)
    if name != "realsyn":
        assert picture.alt_text == ALT
    assert URL in (picture.url, *document.metadata.values()) or URL in kept
    assert all(fact in kept for fact in {LICENCE, SHA, DATE} - WITHOUT.get(name, set()))


def test_a_warc_keeps_addresses_dates_and_the_digests_of_its_records(tmp_path):
    (document,) = documents(open_source(str(write(tmp_path, {"x.warc.gz": warc()}))))
    (picture,) = pictures(document)
    assert (picture.url, picture.alt_text, picture.data) == (URL, ALT, jpeg())
    said = document.metadata
    assert (said["url"], said["crawled"], said["license"]) == ("https://x.example/", DATE, LICENCE)
    assert str(said["payload_digest"]).startswith("sha1:")


@pytest.mark.parametrize("said", ["{broken", "[1, 2]", "\xff", '{"url": 5, "caption": ["x"]}'])
def test_a_json_beside_a_picture_that_cannot_be_used_costs_nothing_else(tmp_path, said):
    write(tmp_path, {"a.jpg": jpeg(), "a.txt": "Caption.", "a.json": said.encode("latin-1")})
    (document,) = documents(open_source(str(tmp_path)))
    (picture,) = pictures(document)
    assert (picture.alt_text, picture.url, picture.data) == ("Caption.", str(tmp_path / "a.jpg"), jpeg())
    assert open_source(str(tmp_path)).ignored() == []
