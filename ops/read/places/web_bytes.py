"""Read bytes at a web address: by ranges, again where a failure may pass, and never for ever.

fsspec's HTTPFile repeats nothing, does not see a file change while it is read, and shows the address's signature in its
errors. tenacity would need 24 lines instead of 21, since Retry-After and the messages stay to be written.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from email.message import Message
from http.client import HTTPException, HTTPResponse, IncompleteRead, InvalidURL
from typing import IO, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from catalog.terms.secrets import without_secrets
from ops.read.places import retries
from ops.read.places.tree import SourceError

SECONDS, ATTEMPTS, FIRST_WAIT, LONGEST_WAIT = 30, 5, 0.5, 30.0
PASSING = (429, 500, 502, 503, 504)
CHUNK = 2**20
# A list without ranges is brought to a worker's disk up to here.
MAX_BYTES = 64 * 2**30


class State(NamedTuple):
    """``size`` in bytes, -1 when the server does not say; ``etag`` '' when it has none."""

    size: int
    etag: str
    has_ranges: bool


def range_of(address: str, start: int, end: int, state: State) -> bytes:
    """Read bytes [start, end). Raises SourceError when they cannot be had or the file changed since its ``state``."""

    def taken(answer: HTTPResponse) -> bytes:
        found = answer.read(end - start)
        if answer.status != 206 or _etag(answer.headers) != state.etag:
            raise SourceError(f"'{without_secrets(address)}' changed while it was read; run again")
        if len(found) < end - start:
            raise IncompleteRead(found, end - start - len(found))
        return found

    return _asked(address, {"Range": f"bytes={start}-{end - 1}"}, taken)


def brought(address: str) -> IO[bytes]:
    """Copy the whole file into a temporary one. Raises SourceError when it cannot be read or has over MAX_BYTES."""

    def taken(answer: HTTPResponse) -> IO[bytes]:
        near = tempfile.TemporaryFile()  # noqa: SIM115  # its reader closes it
        while data := answer.read(CHUNK):
            near.write(data)
            if near.tell() > MAX_BYTES:
                raise SourceError(
                    f"'{without_secrets(address)}' has over {MAX_BYTES} bytes, and no ranges to read it by"
                )
        if answer.length:  # what was announced and did not come
            raise IncompleteRead(b"", answer.length)
        near.seek(0)
        return near

    return _asked(address, {}, taken)


def state_of(address: str) -> State:
    """Ask for size and etag, anew each time a file is opened. Raises SourceError when the address cannot be read.

    By a range of one byte, since a signed address may allow only GET.
    """

    def taken(answer: HTTPResponse) -> State:
        total = answer.headers.get("Content-Range", "").rpartition("/")[2]
        if answer.status == 206 and total.isdigit():
            return State(int(total), _etag(answer.headers), True)
        size = answer.headers.get("Content-Length", "")
        return State(int(size) if size.isdigit() else -1, _etag(answer.headers), False)

    return _asked(address, {"Range": "bytes=0-0"}, taken)


def _etag(headers: Message) -> str:
    return headers.get("ETag", "") or headers.get("Last-Modified", "")


Taken = TypeVar("Taken")


def _asked(address: str, headers: dict[str, str], take: Callable[[HTTPResponse], Taken]) -> Taken:
    """Ask and return what ``take`` makes of the answer; again with growing waits where a failure may pass.

    Raises SourceError in the end.
    """
    # Packed on the way, lengths and ranges would be of something else.
    request = Request(address, headers={"User-Agent": "pairmill", "Accept-Encoding": "identity", **headers})
    wait = FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with urlopen(request, timeout=SECONDS) as answer:
                return take(answer)
        except HTTPError as error:
            if error.code not in PASSING or attempt == ATTEMPTS:
                raise SourceError(
                    f"'{without_secrets(address)}' is answered by HTTP {error.code} {error.reason}"
                ) from None
            stated = error.headers.get("Retry-After", "")
            wait = max(wait, float(stated)) if stated.isdigit() else wait
        except InvalidURL:  # its own message quotes the address, signature and all
            raise SourceError(f"'{without_secrets(address)}' is no URL: it holds a space or a control code") from None
        except (OSError, HTTPException) as error:
            if attempt == ATTEMPTS:
                raise SourceError(f"'{without_secrets(address)}' cannot be read: {error}; check the network") from None
        retries.add()
        time.sleep(min(wait, LONGEST_WAIT))
        wait *= 2
    raise AssertionError("the last attempt returns or raises")
