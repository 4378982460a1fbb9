"""Fetch images by URL: many in parallel, few from one host, none from a blocked address.

aiohttp does not retry requests. tenacity would save no line: responses, not exceptions, decide about a retry.
"""

import asyncio
import atexit
import contextlib
import random
import socket
import string
import time
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from urllib.parse import quote

import aiohttp
from yarl import URL

from pairmill.ops.ban_list import Banned
from pairmill.ops.fault import Fault, in_words
from pairmill.ops.fetch.address import AllowedAddresses, BlockedAddress, numeric
from pairmill.ops.fetch.names import CachingResolver, Lookup, system_lookup
from pairmill.ops.header_number import seconds_until, whole_number
from pairmill.ops.image.header import format_of, inspect
from pairmill.ops.opt_out import AGENT, find_opt_out
from pairmill.ops.web_address import absolute_address, address_key, request_address


@dataclass(frozen=True)
class FetchResult:
    """The outcome of fetching one URL; ``fault`` is None exactly when ``data`` holds a usable image."""

    url: str
    fault: Fault | None = None
    passing: bool = False  # a transient failure (timeout, 429, 5xx, lost connection): a later retry may succeed
    http_status: int = 0  # of the last response, 0 if there was none
    final_url: str = ""  # after redirects
    content_type: str = ""
    etag: str = ""
    last_modified: str = ""
    data: bytes = field(default=b"", repr=False)
    attempts: int = 1  # requests without redirects
    seconds: float = 0.0  # the time of all attempts without the wait for a connection slot
    retry_after: float = 0.0  # the wait in seconds that the host asked for


HEADERS = {
    "User-Agent": f"{AGENT}/0.1 (image-text dataset curation; heeds X-Robots-Tag)",
    "Accept": "image/*,*/*;q=0.5",
    "Accept-Encoding": "identity",
}
MOST_REDIRECTS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# Seconds. A host that asks for a longer wait is not retried in this run.
MOST_PATIENCE = 30.0
FIRST_PAUSE = 0.5
_TURNS: dict[str, float] = {}  # the earliest time of the next request to a host that asks for a delay


@dataclass(frozen=True)
class Fetcher:
    """Fetch a batch of URLs; return one `FetchResult` per fetched URL, in the order of the URLs; never raise for a URL.

    The results of one batch hold at most about ``most_held`` bytes, including bodies still being read, so that hostile
    images cannot fill the memory. At the limit no further URL is requested, and bodies in progress are dropped; only if
    there is no result yet, the oldest body is read on. URLs without a result are left out; the caller requests them
    again. The first URL is always requested.
    """

    connections: int = 64  # parallel connections of this process
    per_host: int = 8  # of these to one host
    seconds: float = 20.0  # timeout of one attempt with its redirects
    retries: int = 2  # after timeouts, lost connections, 429 and 5xx, with back-off
    max_bytes: int = 50_000_000  # a larger body is cut off
    most_held: int = 192_000_000
    reach: AllowedAddresses = field(default_factory=AllowedAddresses)
    banned: Banned = field(default_factory=Banned)
    lookup: Lookup = system_lookup
    heeds_tdm: bool = False  # the header of the TDM Reservation Protocol
    is_for_rules: bool = False  # it reads what hosts say of fetching, no images
    delays: Mapping[str, float] = field(default_factory=dict, hash=False, compare=False)  # seconds, by host and port

    def __call__(self, urls: Sequence[str]) -> list[FetchResult]:
        """Fetch ``urls``; block until every requested URL has its answer. Raises nothing."""
        return _runner().run(self._fetch(urls))

    async def _fetch(self, urls: Sequence[str]) -> list[FetchResult]:
        """Fetch ``urls`` concurrently; leave out those that `_BatchFetch.fetch` did not request."""
        batch = _BatchFetch(self)
        answers = await asyncio.gather(*(batch.fetch(url) for url in urls))
        return [answer for answer in answers if answer is not None]


@cache
def _runner() -> asyncio.Runner:
    """Create the process's one event loop, so that DNS answers and connections outlive a batch."""
    return asyncio.Runner()


@cache
def _session(fetcher: Fetcher) -> aiohttp.ClientSession:
    """Create the process's HTTP session for ``fetcher``, with address checks on every connection; close it at exit."""

    def socket_to(info: tuple) -> socket.socket:
        # The final check: however the address was found, this is the one that the socket would contact.
        fetcher.reach.check(info[4][0])
        return socket.socket(info[0], info[1], info[2])

    connector = aiohttp.TCPConnector(
        limit=0, use_dns_cache=False, resolver=CachingResolver(fetcher.reach, fetcher.lookup), socket_factory=socket_to
    )
    session = aiohttp.ClientSession(
        connector=connector,
        headers=HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        requote_redirect_url=True,
        timeout=aiohttp.ClientTimeout(total=None),
    )
    atexit.register(lambda: _runner().run(session.close()))
    return session


class _MemoryFull(Exception):
    """Raised when the bytes in memory reach ``most_held``: the body is dropped, its URL left for a later call."""


class _BatchFetch:
    """Fetch one batch of URLs; a fetch takes its host's slot before a connection, so that no slow host blocks one."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.session = _session(fetcher)
        self.all = asyncio.Semaphore(fetcher.connections)
        self.hosts: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(fetcher.per_host))
        # Fetches that wait for a slow host or for a retry take a place here: four fetches for each connection.
        self.room = asyncio.Semaphore(4 * fetcher.connections)
        self.held = 0
        # Bytes read so far by each running task, the oldest task first.
        self.reading: dict[object, int] = {}

    async def fetch(self, url: str) -> FetchResult | None:
        """Fetch one URL with retries; return None if memory is full or this body was dropped."""
        async with self.room:
            if self.held > self.fetcher.most_held:
                return None
            self.reading[asyncio.current_task()] = 0
            answer = None
            try:
                with contextlib.suppress(_MemoryFull):
                    answer = await self._persist(url)
            finally:
                self.held -= self.reading.pop(asyncio.current_task())
                self.held += len(answer.data) if answer else 0
            return answer

    def _take(self, size: int) -> None:
        """Count ``size`` bytes of a body that is being read; raise _MemoryFull above ``most_held``.

        The oldest task goes on while the batch has no answer yet, so that at least one URL is answered.
        """
        task = asyncio.current_task()
        self.reading[task] += size
        self.held += size
        answered = self.held - sum(self.reading.values())
        if self.held > self.fetcher.most_held and (answered or task is not next(iter(self.reading))):
            raise _MemoryFull

    async def _persist(self, url: str) -> FetchResult:
        """Fetch one URL, and retry transient failures with back-off, up to ``retries`` times."""
        answer = await self._attempt(url)
        for attempt in range(1, self.fetcher.retries + 1):
            pause = _pause(answer, attempt)
            if not answer.passing or pause > MOST_PATIENCE:
                break
            await asyncio.sleep(pause)
            again = await self._attempt(url)
            answer = replace(again, attempts=attempt + 1, seconds=answer.seconds + again.seconds)
        return answer

    async def _attempt(self, url: str) -> FetchResult:
        """Make one request and follow its redirects; turn every error into a FetchResult."""
        spent = _AttemptTimer(self.fetcher.seconds)
        at = url
        try:
            for _ in range(MOST_REDIRECTS + 1):
                if isinstance(target := self._target(at), Fault):
                    return FetchResult(url, target.about(url), final_url=at, seconds=spent.so_far())
                await self._await_turn(target)
                async with (
                    self.hosts[target.host or ""],
                    self.all,
                    spent.running(),
                    self.session.get(target, allow_redirects=False) as response,
                ):
                    answer = await self._answer(url, response)
                if answer is not None:
                    return replace(answer, seconds=spent.so_far())
                location = _escape(response.headers.get("Location", ""))
                at = absolute_address(location, str(target)) or location
            detail = f"more than {MOST_REDIRECTS} redirects; the last led to {at[:200]}"
            return FetchResult(url, Fault(url, "too_many_redirects", detail), final_url=at, seconds=spent.so_far())
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
            return replace(_as_failure(url, error, self.fetcher.seconds), final_url=at, seconds=spent.so_far())

    async def _await_turn(self, target: URL) -> None:
        """Wait for the delay that the host asks for since its last request of this process."""
        if delay := self.fetcher.delays.get(target.authority, 0.0):
            at = max(time.monotonic(), _TURNS.get(target.authority, 0.0))
            _TURNS[target.authority] = at + delay
            await asyncio.sleep(at - time.monotonic())

    def _target(self, url: str) -> URL | Fault:
        """Parse a URL; return a Fault if it must not be contacted. Names are resolved and checked when connecting."""
        try:
            # yarl would decode what is percent-encoded, such as the address inside the address of a signing proxy.
            target = URL(request_address(url), encoded=True).with_user(None)
            host = target.host
            if target.scheme not in ("http", "https") or not host:
                return Fault(url, "bad_record", f"only http:// and https:// are fetched, not '{url[:100]}'")
            if address := numeric(host):
                self.fetcher.reach.check(address)
            spellings = dict.fromkeys((str(target), address_key(str(target))))
            if entry := next(filter(None, map(self.fetcher.banned.entry, spellings)), ""):
                return Fault(url, "banned", f"the list of banned hosts holds '{entry}'")
        except ValueError as error:
            return Fault(url, "bad_record", f"no URL: {error}"[:300])
        except BlockedAddress as error:
            return Fault(url, "blocked_address", str(error))
        return target

    async def _answer(self, url: str, response: aiohttp.ClientResponse) -> FetchResult | None:
        """Convert a response to a FetchResult, reading its body if it is an image; return None for a redirect."""
        if response.status in REDIRECTS and response.headers.get("Location"):
            return None
        headers = response.headers
        answer = FetchResult(
            url,
            http_status=response.status,
            final_url=str(response.url),
            content_type=headers.get("Content-Type", "")[:200],
            etag=headers.get("ETag", "")[:200],
            last_modified=headers.get("Last-Modified", "")[:100],
        )
        if response.status != 200:
            passing = response.status == 429 or response.status >= 500
            asked = seconds_until(headers.get("Retry-After", "")) if passing else 0.0
            fault = Fault(url, "http_status", f"HTTP {response.status}")
            return replace(answer, fault=fault, passing=passing, retry_after=asked)
        if self.fetcher.heeds_tdm and headers.get("tdm-reservation", "").strip() == "1":
            return replace(answer, fault=Fault(url, "opt_out", "tdm-reservation: 1"))
        directive = "" if self.fetcher.is_for_rules else find_opt_out(headers.getall("X-Robots-Tag", ()))
        if directive:
            return replace(answer, fault=Fault(url, "opt_out", f"X-Robots-Tag: {directive}"))
        body = await read_body(response, self.fetcher.max_bytes, self._take, not self.fetcher.is_for_rules)
        return replace(answer, fault=body.about(url)) if isinstance(body, Fault) else replace(answer, data=body)


class _AttemptTimer:
    """Measure the time of one attempt, without the wait for a connection slot."""

    def __init__(self, seconds: float) -> None:
        self._left = self._total = seconds

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count the time inside this context; raise TimeoutError when the attempt's time is used up."""
        started = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._left)):
                yield
        finally:
            self._left -= time.monotonic() - started

    def so_far(self) -> float:
        """Return the time counted so far in seconds, rounded to 4 decimals."""
        return round(self._total - self._left, 4)


def _as_failure(url: str, error: Exception, seconds: float) -> FetchResult:
    """Convert an error to a FetchResult; timeouts, lost connections and unreachable hosts are transient."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, BlockedAddress):
        return FetchResult(url, Fault(url, "blocked_address", str(cause)))
    if isinstance(error, TimeoutError):
        return FetchResult(url, Fault(url, "timeout", f"no complete response within {seconds:g} s"), passing=True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return FetchResult(url, Fault(url, "truncated", f"the connection was lost: {error}"[:300]), passing=True)
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return FetchResult(url, Fault(url, "bad_record", f"no URL: {error}"[:300]))
    detail = f"no answer: {type(error).__name__}: {error}"[:300]
    # EAI_NONAME: the name does not exist, so a retry cannot succeed.
    gone = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME
    return FetchResult(url, Fault(url, "missing", detail), passing=not gone)


def _escape(location: str) -> str:
    """Percent-encode the bytes of a Location beyond ASCII, of whatever charset, as browsers do."""
    return quote(location.encode("utf-8", "surrogateescape"), safe=string.punctuation + " ")


def _pause(answer: FetchResult, attempt: int) -> float:
    """Return the seconds to wait, by half at random and doubled each time; never less than the host asked for."""
    return max(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), answer.retry_after)


# Bytes that identify any format. An HTML page served at an image URL is not read beyond this.
ENOUGH = 512
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}


async def read_body(
    response: aiohttp.ClientResponse, max_bytes: int, take: Callable[[int], None], is_picture: bool = True
) -> bytes | Fault:
    """Read a response body of at most ``max_bytes`` that begins like an image, or return a Fault without item.

    Without ``is_picture`` it may be anything, and what is longer is cut off.

    A compressed body that was not asked for is decompressed chunk by chunk, so a few bytes cannot expand beyond the
    limit. ``take`` gets each chunk's size in bytes, and may raise to stop the read. Raises aiohttp's connection errors.
    """
    length = response.headers.get("Content-Length", "")
    if (announced := whole_number(length)) is not None and announced > max_bytes and is_picture:
        return Fault("", "too_large", f"{announced} bytes announced; at most {max_bytes} are taken")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", *PACKED):
        return Fault("", "undecodable", f"the answer is packed as {encoding[:40]!r}, which was not asked for")
    chunks = response.content.iter_any()
    if encoding in PACKED:
        chunks = _unpacked(chunks, PACKED[encoding], max_bytes + 1)
    data = bytearray()
    known = False
    try:
        async for chunk in chunks:
            take(len(chunk))
            data += chunk
            if len(data) > max_bytes and not is_picture:
                break
            if len(data) > max_bytes:
                return Fault("", "too_large", f"more than {max_bytes} bytes")
            if is_picture and not known and len(data) >= ENOUGH:
                known = True
                if not format_of(bytes(data[:ENOUGH])):
                    break
    except zlib.error as error:
        return Fault("", "undecodable", f"a {encoding} body that cannot be unpacked: {in_words(error)}")
    if is_picture and not format_of(bytes(data[:ENOUGH])):
        found = inspect(bytes(data), 1, max_bytes)
        return found if isinstance(found, Fault) else Fault("", "not_an_image", "no known image format")
    return bytes(data[:max_bytes])


async def _unpacked(chunks: AsyncIterator[bytes], window: int, limit: int) -> AsyncIterator[bytes]:
    """Decompress ``chunks`` with zlib's ``window`` bits; stop after ``limit`` bytes of output."""
    inflate = zlib.decompressobj(window)
    left = limit
    async for chunk in chunks:
        while chunk and left > 0:
            piece = inflate.decompress(chunk, left)
            chunk = inflate.unconsumed_tail
            left -= len(piece)
            yield piece
            if inflate.eof:
                return
