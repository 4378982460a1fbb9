"""Read bytes at a web address: by ranges, again where a failure may pass, and never for ever.

fsspec's HTTPFile repeats nothing, does not see a file change while it is read, and shows the address's signature in its
errors. tenacity would need 24 lines instead of 21, since Retry-After and the messages stay to be written.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPResponse, IncompleteRead, InvalidURL
from typing import IO, Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener

from pairmill.catalog.terms.secrets import without_secrets
from pairmill.ops.header_number import whole_number
from pairmill.ops.read.places import retries
from pairmill.ops.read.places.tree import SourceError

SECONDS, ATTEMPTS, FIRST_WAIT, LONGEST_WAIT = 30, 5, 0.5, 30.0
# Of a whole answer: so long, and longer by what it brings. Below that rate a terabyte would take half a year.
ANSWER_SECONDS, LEAST_RATE = 60.0, 64 * 2**10
PASSING = (429, 500, 502, 503, 504)
CHUNK = 2**20
# A list without ranges is brought to a worker's disk up to here.
MAX_BYTES = 64 * 2**30


class RemoteFileState(NamedTuple):
    """``size`` in bytes, -1 when the server does not say; ``etag`` '' when it has none."""

    size: int
    etag: str
    has_ranges: bool


def range_of(address: str, start: int, end: int, state: RemoteFileState) -> bytes:
    """Read bytes [start, end). Raises SourceError when they cannot be had or the file changed since its ``state``."""

    def taken(answer: HTTPResponse, watch: _ResponseDeadline) -> bytes:
        watch.allow(end - start)
        found = answer.read(end - start)
        if answer.status != 206 or _etag(answer.headers) != state.etag:
            raise SourceError(f"'{without_secrets(address)}' changed while it was read; run again")
        if len(found) < end - start:
            raise IncompleteRead(found, end - start - len(found))
        return found

    return _asked(address, {"Range": f"bytes={start}-{end - 1}"}, taken)


def brought(address: str) -> IO[bytes]:
    """Copy the whole file into a temporary one. Raises SourceError when it cannot be read or has over MAX_BYTES."""

    def taken(answer: HTTPResponse, watch: _ResponseDeadline) -> IO[bytes]:
        near = tempfile.TemporaryFile()  # noqa: SIM115  # its reader closes it
        watch.allow(CHUNK)
        while data := answer.read(CHUNK):
            near.write(data)
            watch.allow(CHUNK)
            if near.tell() > MAX_BYTES:
                raise SourceError(
                    f"'{without_secrets(address)}' has over {MAX_BYTES} bytes, and no ranges to read it by"
                )
        if answer.length:  # what was announced and did not come
            raise IncompleteRead(b"", answer.length)
        near.seek(0)
        return near

    return _asked(address, {}, taken)


def state_of(address: str) -> RemoteFileState:
    """Ask for size and etag, anew each time a file is opened. Raises SourceError when the address cannot be read.

    By a range of one byte, since a signed address may allow only GET.
    """

    def taken(answer: HTTPResponse, watch: _ResponseDeadline) -> RemoteFileState:
        total = whole_number(answer.headers.get("Content-Range", "").rpartition("/")[2])
        if answer.status == 206 and total is not None:
            return RemoteFileState(total, _etag(answer.headers), True)
        size = whole_number(answer.headers.get("Content-Length", ""))
        return RemoteFileState(-1 if size is None else size, _etag(answer.headers), False)

    return _asked(address, {"Range": "bytes=0-0"}, taken)


def _etag(headers: Message) -> str:
    return headers.get("ETag", "") or headers.get("Last-Modified", "")


Taken = TypeVar("Taken")


class _ResponseDeadline:
    """Cut a connection off when its answer takes too long, however often a byte of it comes."""

    def __init__(self) -> None:
        self.has_cut = False
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(0, lambda: None)

    def __enter__(self) -> _ResponseDeadline:
        self.allow(0)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def open(self, request: Request) -> HTTPResponse:
        """Ask as urlopen does. Raises what that raises."""
        return build_opener(_Http(self._sockets), _Https(self._sockets)).open(request, timeout=SECONDS)

    def allow(self, size: int) -> None:
        """Give what is read from now on the time of ``size`` bytes."""
        self._timer.cancel()
        self._timer = threading.Timer(ANSWER_SECONDS + size / LEAST_RATE, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def _cut(self) -> None:
        self.has_cut = True
        for each in self._sockets:
            # A copy of the descriptor: what TLS holds of the socket belongs to the thread that reads.
            with suppress(OSError), socket.socket(fileno=os.dup(each.fileno())) as same:
                same.shutdown(socket.SHUT_RDWR)


def _noting(http_class: Any, sockets: list[socket.socket]) -> Any:
    """Make connections as ``http_class`` does, and note their sockets."""

    def made(*words: Any, **named: Any) -> HTTPConnection:
        connection = http_class(*words, **named)
        connect = connection.connect

        def connected() -> None:
            connect()
            sockets.append(connection.sock)

        connection.connect = connected
        return connection

    return made


class _Http(HTTPHandler):
    """urllib's handler, which notes the sockets that it opens."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def do_open(self, http_class: Any, req: Request, **more: Any) -> Any:
        return super().do_open(_noting(http_class, self._sockets), req, **more)


class _Https(HTTPSHandler):
    """The same over TLS."""

    def __init__(self, sockets: list[socket.socket]) -> None:
        super().__init__()
        self._sockets = sockets

    def do_open(self, http_class: Any, req: Request, **more: Any) -> Any:
        return super().do_open(_noting(http_class, self._sockets), req, **more)


def _asked(address: str, headers: dict[str, str], take: Callable[[HTTPResponse, _ResponseDeadline], Taken]) -> Taken:
    """Ask and return what ``take`` makes of the answer; again with growing waits where a failure may pass.

    Raises SourceError in the end.
    """
    # Packed on the way, lengths and ranges would be of something else.
    request = Request(address, headers={"User-Agent": "pairmill", "Accept-Encoding": "identity", **headers})
    wait = FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with _ResponseDeadline() as watch, watch.open(request) as answer:
                return take(answer, watch)
        except HTTPError as error:
            if error.code not in PASSING or attempt == ATTEMPTS:
                raise SourceError(
                    f"'{without_secrets(address)}' is answered by HTTP {error.code} {error.reason}"
                ) from None
            wait = max(wait, float(whole_number(error.headers.get("Retry-After", "")) or 0))
        except InvalidURL:  # its own message quotes the address, signature and all
            raise SourceError(f"'{without_secrets(address)}' is no URL: it holds a space or a control code") from None
        except (OSError, HTTPException, ValueError) as error:
            if attempt == ATTEMPTS:
                why = f"it sends less than {LEAST_RATE} bytes a second" if watch.has_cut else error
                raise SourceError(f"'{without_secrets(address)}' cannot be read: {why}; check the network") from None
        retries.add()
        time.sleep(min(wait, LONGEST_WAIT))
        wait *= 2
    raise AssertionError("the last attempt returns or raises")
