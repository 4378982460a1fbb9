"""Lists and archives from a web server on loopback: with ranges and without, well and unwell."""

import gzip
import pickle
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

from pairmill.ops.read.places import retries, web
from pairmill.ops.read.source import Document, SourceError, open_source
from tests.fuzz.inputs import seeds
from tests.worlds.formats import shown
from tests.worlds.samples import documents, everything, outline, table_bytes, write
from tests.worlds.web import picture, redirect
from tests.worlds.web import web as running


@dataclass
class Site:
    """What the server has, and how it behaves; ``asked`` counts requests by status."""

    files: dict[str, bytes]
    address: str = ""
    ranges: bool = True
    etag: str = '"1"'
    ills: list[object] = field(default_factory=list)
    asked: Counter = field(default_factory=Counter)
    paths: list[str] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)


def handler(site: Site):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            site.paths.append(self.path)
            ill = site.ills.pop(0) if site.ills else None
            if ill == "rewritten":
                site.etag += "x"
            data = site.files.get(self.path.partition("?")[0][1:])
            if ill == "reset":
                site.asked["reset"] += 1
                return self.connection.close()
            if isinstance(ill, str) and ill.startswith("dripping"):
                return self.drip(ill)
            if isinstance(ill, int) or data is None:
                return self.answer(ill or 404, b"", {})
            wanted = self.headers.get("Range") if site.ranges else None
            if wanted is None:
                return self.answer(200, data, {}, cut=ill == "cut")
            start, end = (int(each) for each in wanted.removeprefix("bytes=").split("-"))
            piece = data[start : end + 1]
            where = f"bytes {start}-{start + len(piece) - 1}/{len(data)}"
            self.answer(206, piece, {"Content-Range": where}, cut=ill == "cut")

        def answer(self, status, data, headers, cut=False):
            site.asked[status] += 1
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), "ETag": site.etag, **headers, **site.said}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)

        def drip(self, ill):
            head = (
                b'HTTP/1.1 206 Partial\r\nContent-Length: 50\r\nETag: "1"\r\n\r\n' if "body" in ill else b"HTTP/1.1 20"
            )
            with suppress(OSError):
                self.wfile.write(head)
                for _ in range(200):
                    self.wfile.write(b"6")
                    time.sleep(0.05)

        def log_message(self, *_):
            pass

    return Handler


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(web, "FIRST_WAIT", 0.01)
    found = Site(seeds() | {"big.parquet": BIG})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(found))
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    found.address = f"http://127.0.0.1:{server.server_port}"
    yield found
    server.shutdown()
    server.server_close()


N = 3000
BIG = table_bytes(
    {
        "url": pa.array([f"https://x.example/{n}.jpg" for n in range(N)]),
        "TEXT": pa.array([f"Caption {n} {'é' * (n % 50)}." for n in range(N)]),
        "LICENSE": pa.array(["CC-BY"] * N),
    },
    row_group_size=500,
)
NAMES = ["u.parquet", "u.csv", "u.jsonl", "u.jsonl.gz", "u.jsonl.zip", "i.parquet", "m.jsonl", "w.tar", "c.warc.gz"]


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", [*NAMES, "big.parquet"])
def test_a_list_on_the_web_gives_the_same_as_the_file(tmp_path, site, name, ranges):
    site.ranges = ranges
    write(tmp_path, {name: site.files[name]})
    local, remote = open_source(str(tmp_path / name)), open_source(f"{site.address}/{name}")
    found = shown(remote, site.address)
    assert found == shown(local, str(tmp_path))
    assert [unit.size for unit in remote.units()] == [unit.size for unit in local.units()]
    assert site.asked[206 if ranges else 200] > 0


@pytest.mark.parametrize("ranges", [True, False])
def test_passing_failures_are_asked_again_and_counted(site, ranges):
    site.ranges = ranges
    for n, ills in enumerate(([503, 500, "reset"], [429, None, None, "cut", "reset"], [None, 502, None, "cut"])):
        site.etag = f'"{n}"'
        site.ills, before = list(ills), retries.count()
        found = documents(open_source(f"{site.address}/big.parquet"))
        assert [outline(document)[1] for document in found][::999] == [f"Caption {n} {'é' * (n % 50)}." for n in
                                                                       range(0, N, 999)]  # fmt: skip
        assert (len(found), site.ills, retries.count() - before) == (N, [], len(ills) - ills.count(None))


def test_what_a_list_says_of_its_pictures_is_kept_with_their_addresses(site):
    first = documents(open_source(f"{site.address}/big.parquet"))[0]
    assert first.uri == f"{site.address}/big.parquet#row=0"
    assert first.metadata["LICENSE"] == "CC-BY"


def test_a_rewritten_list_has_another_etag_whatever_its_server_tells(site):
    for etag, word in (('"2"', b"First"), ("", b"Last")):
        site.etag = etag
        (before,) = open_source(f"{site.address}/u.csv").units()
        assert open_source(f"{site.address}/u.csv").units() == [before]
        site.files["u.csv"] = site.files["u.csv"] + b"https://x.example/9.jpg," + word + b"\n"
        site.etag = etag and '"3"'
        assert open_source(f"{site.address}/u.csv").units()[0].etag != before.etag


def test_a_list_that_changes_while_it_is_read_is_told(site):
    source = open_source(f"{site.address}/big.parquet")
    units = source.units()
    site.ills = [None, "rewritten"]
    with pytest.raises(SourceError, match="changed while it was read"):
        list(source.read(units[0]))


def test_a_signature_is_sent_and_stands_in_no_row(site):
    source = open_source(f"{site.address}/u.jsonl?X-Signature=secret")
    found = [repr(shown(source, "")), source.uri, repr(source), *(unit.uri for unit in source.units())]
    assert all(path.endswith("?X-Signature=secret") for path in site.paths)
    assert not any("secret" in text for text in found)
    assert all(isinstance(each, Document) for each in everything(source))


def test_a_list_is_requested_as_a_browser_requests_its_address(site):
    site.files["d%3A1/my%20l%C3%AFst.jsonl"] = site.files["u.jsonl"]
    assert len(documents(open_source(f"{site.address}/d%3A1/my lïst.jsonl"))) == 4
    with pytest.raises(SourceError, match="no web address"):
        open_source("https://x.example:99999/u.csv")


def test_a_source_on_the_web_pickles_and_reads_the_same_elsewhere(site):
    source = open_source(f"{site.address}/u.parquet")
    units, copy = source.units(), pickle.loads(pickle.dumps(source))
    assert [list(copy.read(unit)) for unit in units] == [list(source.read(unit)) for unit in units]


def test_a_gzip_of_a_list_is_unpacked_and_not_by_the_transfer(site):
    site.files["x.csv.gz"] = gzip.compress(site.files["u.csv"])
    assert len(documents(open_source(f"{site.address}/x.csv.gz"))) == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gone.parquet", "gone.parquet' is answered by HTTP 404"),
        ("page.html", "only lists and archives are read: .parquet"),
        ("", "only lists and archives are read"),
    ],
)
def test_an_address_that_cannot_be_read_says_why(site, name, message):
    with pytest.raises(SourceError, match=message):
        open_source(f"{site.address}/{name}").units()


def test_a_place_where_nothing_listens_and_a_password_in_an_address_are_told(site):
    with pytest.raises(SourceError, match=r"cannot be read: .*refused.*check the network"):
        open_source("http://127.0.0.1:9/u.csv").units()
    with pytest.raises(SourceError, match="no user and password in an address") as error:
        open_source("https://me:hush@x.example/u.csv")
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("number", ["\u00b2", "9" * 5000, "-1", "0x10", "1_000"], ids=ascii)
def test_a_length_that_is_no_number_is_no_length(site, number):
    site.ranges = False
    site.said = {"Content-Length": number, "Connection": "close"}
    assert web.state_of(f"{site.address}/u.csv").size == -1
    site.said = {"Content-Range": f"bytes 0-0/{number}"}
    site.ranges = True
    assert not web.state_of(f"{site.address}/u.csv").has_ranges


@pytest.mark.parametrize("ill", ["dripping head", "dripping body"])
def test_an_answer_that_comes_a_byte_at_a_time_is_ended(site, monkeypatch, ill):
    monkeypatch.setattr(web, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(web, "ATTEMPTS", 2)
    site.ills = [ill] * 2
    with pytest.raises(SourceError, match="less than 65536 bytes a second"):
        web.range_of(f"{site.address}/u.csv", 0, 50, web.RemoteFileState(100, '"1"', True))


def test_a_public_server_may_not_lead_on_to_a_private_network_or_to_another_protocol(monkeypatch: pytest.MonkeyPatch):
    with running() as public, running() as private:
        private.manners["/list.csv"] = picture(b"url,caption\nhttp://a.example/1.jpg,A fox.\n")
        public.manners["/here.csv"] = redirect(private.url("/list.csv"))
        public.manners["/files.csv"] = redirect(private.url("/list.csv").replace("http:", "ftp:"))
        assert open_source(public.url("/here.csv"))  # from one private server to another
        own = int(public.url("").rpartition(":")[2])
        monkeypatch.setattr(web, "_is_public", lambda connected: connected.getpeername()[1] == own)
        before = private.asked["/list.csv"]
        for path, why in (("/here.csv", "which is not public"), ("/files.csv", "no http")):
            with pytest.raises(SourceError, match=why):
                list(open_source(public.url(path)).units())
        assert private.asked["/list.csv"] == before
