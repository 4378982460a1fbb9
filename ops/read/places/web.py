"""Read a list or an archive at a web address, by ranges if the server supports them, else as a whole.

Transient failures are retried, and each response has a time limit. The usual proxy variables apply. The query of an
address may be a signature: it is sent with requests, but is in no URI. A list may be on a private network, but a public
server may not redirect to a private address (server-side request forgery).

fsspec's HTTPFile retries nothing, does not notice that a file changes while it is read, and shows the address's
signature in its errors. tenacity would save no line: Retry-After and the messages would still have to be written.
"""

import hashlib
import ipaddress
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException, HTTPResponse, IncompleteRead
from typing import IO, Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import AbstractHTTPHandler, HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.secrets import without_secrets
from pairmill.ops.fault import Fault
from pairmill.ops.fetch.address import embedded_ipv4, is_public
from pairmill.ops.header_number import whole_number
from pairmill.ops.read.places import retries
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import MAX_BYTES, SourceError, Tree, refused
from pairmill.ops.web_address import request_address

READABLE = (".parquet", ".parq", ".csv", ".tsv", ".jsonl", ".ndjson", ".warc", ".tar", ".tgz", ".zip")
SECONDS, ATTEMPTS, FIRST_WAIT, LONGEST_WAIT = 30, 5, 0.5, 30.0
# The time limit of a whole response in seconds, extended by its size at the least rate in bytes per second. At that
# rate a terabyte would take half a year.
ANSWER_SECONDS, LEAST_RATE = 60.0, 64 * 2**10
PASSING = (429, 500, 502, 503, 504)
CHUNK = 2**20
# A file of a server without ranges is copied to a worker's disk up to this size.
MOST_BYTES = 64 * 2**30


@dataclass(frozen=True)
class WebTree(Tree):
    """Tree of one file, ``name`` below ``root`` ('https://host/folder'); ``query`` is sent with each request."""

    root: str
    name: str
    query: str = field(default="", repr=False)

    @property
    def place(self) -> str:
        """The file's address without its query, which may be a secret that no row may contain."""
        return self.uri(self.name)

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List the file as Tree.list_into does; hash the whole file if the server states no size or no etag."""
        state = state_of(self._address)
        size, etag = state.size, state.etag
        if size < 0 or not etag:
            with self.open(self.name) as file:
                digest = hashlib.file_digest(file, "sha256")  # pyright: ignore[reportArgumentType]
                size, etag = file.tell(), digest.hexdigest()
        files.add([Entry(self.name, size, text_id(etag, str(size)))])
        return iter(())

    def exists(self, path: str) -> bool:
        """Return whether ``path`` is the name of this tree's one file."""
        return path == self.name

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read the file if it has at most ``most`` bytes, or return a Fault. Raises SourceError if a request fails."""
        if not self.exists(path):
            return Fault(self.uri(path), "missing", "at a web address only the list itself is read")
        with self.open(path) as file:
            data = file.read(most + 1)
        return refused(self.uri(path), len(data), most) or data

    def open(self, path: str) -> IO[bytes]:
        """Open the file for random access. Raises FileNotFoundError for any other path, and SourceError."""
        if not self.exists(path):
            raise FileNotFoundError(self.uri(path))
        state = state_of(self._address)
        if state.has_ranges and state.size >= 0:
            from pairmill.ops.read.places.ranges import buffered  # importing fsspec takes 0.05 s

            return buffered(state.size, lambda start, end: range_of(self._address, start, end, state))
        return download(self._address)

    @property
    def _address(self) -> str:
        """The address with its query, as a browser would request it."""
        return request_address(f"{self.root}/{self.name}" + (f"?{self.query}" if self.query else ""))


def web_tree(uri: str) -> WebTree:
    """Return the tree of one list or archive; send no request. Raises SourceError for an invalid address."""
    try:
        request_address(uri)
    except ValueError:
        raise SourceError(f"source '{without_secrets(uri)}' is no web address; check host and port") from None
    parts = urlsplit(uri)
    folder, _, name = parts.path.rpartition("/")
    plain = name.lower().removesuffix(".gz")
    if parts.username or parts.password:
        raise SourceError(f"source '{parts.scheme}://…@{parts.hostname}': no user and password in an address")
    if not plain.endswith(READABLE):
        shown = f"of the web only lists and archives are read: {', '.join(READABLE)}"
        raise SourceError(f"source '{without_secrets(uri)}': {shown}")
    return WebTree(f"{parts.scheme}://{parts.netloc}{folder}", name, parts.query)


class RemoteFileState(NamedTuple):
    """Size of a remote file in bytes (-1 if unknown), its ``etag`` ('' if none), and whether ranges can be read."""

    size: int
    etag: str
    has_ranges: bool


def range_of(address: str, start: int, end: int, state: RemoteFileState) -> bytes:
    """Return bytes [start, end) of a file. Raises SourceError if that fails or the file has changed since ``state``."""

    def taken(answer: HTTPResponse, watch: "_ResponseDeadline") -> bytes:
        watch.allow(end - start)
        found = answer.read(end - start)
        if answer.status != 206 or _etag(answer.headers) != state.etag:
            raise SourceError(f"'{without_secrets(address)}' changed while it was read; run again")
        if len(found) < end - start:
            raise IncompleteRead(found, end - start - len(found))
        return found

    return _request(address, {"Range": f"bytes={start}-{end - 1}"}, taken)


def download(address: str) -> IO[bytes]:
    """Copy the whole file at ``address`` to a temporary file, and return that file open at its start.

    Raises SourceError if the file cannot be read or is larger than MOST_BYTES.
    """

    def taken(answer: HTTPResponse, watch: "_ResponseDeadline") -> IO[bytes]:
        near = tempfile.TemporaryFile()  # noqa: SIM115  # its reader closes it
        watch.allow(CHUNK)
        while data := answer.read(CHUNK):
            near.write(data)
            watch.allow(CHUNK)
            if near.tell() > MOST_BYTES:
                raise SourceError(f"'{without_secrets(address)}' has over {MOST_BYTES} bytes, and no ranges to read by")
        if answer.length:  # announced bytes that did not arrive
            raise IncompleteRead(b"", answer.length)
        near.seek(0)
        return near

    return _request(address, {}, taken)


def state_of(address: str) -> RemoteFileState:
    """Return size and etag of a file by requesting a range of one byte: a signed address may allow only GET.

    The request is sent each time the file is opened. Raises SourceError if the address cannot be read.
    """

    def taken(answer: HTTPResponse, watch: "_ResponseDeadline") -> RemoteFileState:
        total = whole_number(answer.headers.get("Content-Range", "").rpartition("/")[2])
        if answer.status == 206 and total is not None:
            return RemoteFileState(total, _etag(answer.headers), True)
        size = whole_number(answer.headers.get("Content-Length", ""))
        return RemoteFileState(-1 if size is None else size, _etag(answer.headers), False)

    return _request(address, {"Range": "bytes=0-0"}, taken)


def _etag(headers: Message) -> str:
    """Return the ETag, else the Last-Modified date, else ''."""
    return headers.get("ETag", "") or headers.get("Last-Modified", "")


Taken = TypeVar("Taken")


class _ResponseDeadline:
    """Abort a connection whose response takes too long, even if bytes still arrive."""

    def __init__(self) -> None:
        self.has_cut = False
        self._sockets: list[tuple[socket.socket, bool]] = []
        self._timer = threading.Timer(0, lambda: None)

    def __enter__(self) -> "_ResponseDeadline":
        self.allow(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def open(self, request: Request) -> HTTPResponse:
        """Send a request and return the response, as urlopen does, with its errors."""
        return build_opener(_Http(self._sockets), _Https(self._sockets), _Redirects).open(request, timeout=SECONDS)

    def allow(self, size: int) -> None:
        """Restart the timer with the time that reading ``size`` bytes may take."""
        self._timer.cancel()
        self._timer = threading.Timer(ANSWER_SECONDS + size / LEAST_RATE, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        """Shut down the connection's sockets, which ends a blocked read."""
        self.has_cut = True
        for each, _ in self._sockets:
            # Use a copy of the descriptor: the TLS state of the socket belongs to the thread that reads.
            with suppress(OSError), socket.socket(fileno=os.dup(each.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)


class _SocketRecorder(AbstractHTTPHandler):
    """Record the socket of each connection that one of urllib's handlers opens, and whether its peer is public."""

    def __init__(self, sockets: list[tuple[socket.socket, bool]]) -> None:
        super().__init__()
        self._sockets = sockets

    def do_open(self, http_class: Any, req: Request, **more: Any) -> Any:
        """Open a connection and record its socket."""
        sockets = self._sockets

        class Recorded(http_class):
            def connect(self) -> None:
                super().connect()
                sockets.append((self.sock, _is_public(self.sock)))
                if sockets[0][1] and not sockets[-1][1]:
                    self.close()
                    raise SourceError(
                        f"'{without_secrets(req.full_url)}': a public server leads on to {self.host}, which is not "
                        "public; name that address as the source if it is meant"
                    )

        return super().do_open(Recorded, req, **more)  # pyright: ignore[reportArgumentType]


def _is_public(connected: socket.socket) -> bool:
    """Return whether the peer of a socket, a proxy where there is one, has a public address."""
    return is_public(embedded_ipv4(ipaddress.ip_address(connected.getpeername()[0].partition("%")[0])))


class _Redirects(HTTPRedirectHandler):
    """Follow redirects to web addresses only; urllib alone would follow one to an FTP server too."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """Return the request that follows a redirect. Raises SourceError if the new address is not http(s)."""
        if urlsplit(newurl).scheme not in ("http", "https"):
            shown = f"'{without_secrets(req.full_url)}' leads on to '{without_secrets(newurl)}'"
            raise SourceError(f"{shown}, no http(s) address; copy the file here, and name that")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Http(_SocketRecorder, HTTPHandler):
    """Open http:// addresses."""


class _Https(_SocketRecorder, HTTPSHandler):
    """Open https:// addresses."""


def _request(address: str, headers: dict[str, str], take: Callable[[HTTPResponse, _ResponseDeadline], Taken]) -> Taken:
    """Send a request and return ``take(response, watch)``, after retries. Raises SourceError for the last failure."""
    # With a content encoding, lengths and ranges would refer to the encoded bytes.
    headers = {"User-Agent": "pairmill", "Accept-Encoding": "identity", **headers}
    wait = FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        request = Request(address, headers=headers)  # a new one: it counts redirects, and the fifth time ends as a loop
        try:
            with _ResponseDeadline() as watch, watch.open(request) as answer:
                return take(answer, watch)
        except HTTPError as error:
            if error.code not in PASSING or attempt == ATTEMPTS:
                answer = f"'{without_secrets(address)}' is answered by HTTP {error.code} {error.reason}"
                raise SourceError(answer) from None
            wait = max(wait, float(whole_number(error.headers.get("Retry-After", "")) or 0))
        except (OSError, HTTPException, ValueError) as error:
            if attempt == ATTEMPTS:
                why = f"it sends less than {LEAST_RATE} bytes a second" if watch.has_cut else error
                raise SourceError(f"'{without_secrets(address)}' cannot be read: {why}; check the network") from None
        retries.add()
        time.sleep(min(wait, LONGEST_WAIT))
        wait *= 2
    raise AssertionError("the last attempt returns or raises")
