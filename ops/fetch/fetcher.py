"""Fetch pictures by their addresses: many at once, few from one host, none from where it must not come.

aiohttp repeats no request; tenacity would save no line, since an answer, not an exception, says whether to try again.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import random
import socket
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import aiohttp
from yarl import URL

from pairmill.ops.fault import Fault
from pairmill.ops.fetch.address import AllowedAddresses, BlockedAddress, numeric
from pairmill.ops.fetch.answer import FetchResult
from pairmill.ops.fetch.body import read_body
from pairmill.ops.fetch.names import CachingResolver, Lookup, system_lookup
from pairmill.ops.fetch.refusal import AGENT, Banned, opted_out
from pairmill.ops.header_number import seconds_until

HEADERS = {
    "User-Agent": f"{AGENT}/0.1 (image-text dataset curation; heeds X-Robots-Tag)",
    "Accept": "image/*,*/*;q=0.5",
    "Accept-Encoding": "identity",
}
MOST_REDIRECTS = 5
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# A host that asks for more patience than this is left for another day.
MOST_PATIENCE = 30.0
FIRST_PAUSE = 0.5


@dataclass(frozen=True)
class Fetcher:
    """Fetch a batch of addresses; answers are in their order, and none raises.

    Once ``most_held`` bytes are there, no further address is asked, what is being read is dropped (the oldest alone
    goes on, while there is no answer yet), and the rest has no answer: a batch of hostile pictures must not fill the
    memory, nor 64 of 50 MB that are still being read. The caller asks again for the rest; the first is always asked.

    ``connections`` at once in this process, ``per_host`` of them to one host; ``seconds`` for one attempt, its
    redirects included; ``retries`` after time-outs, lost connections, 429 and 5xx, with back-off. A body is cut off
    behind ``max_bytes``. ``reach`` and ``banned`` say what is never contacted.
    """

    connections: int = 64
    per_host: int = 8
    seconds: float = 20.0
    retries: int = 2
    max_bytes: int = 50_000_000
    most_held: int = 192_000_000
    reach: AllowedAddresses = field(default_factory=AllowedAddresses)
    banned: Banned = field(default_factory=Banned)
    lookup: Lookup = system_lookup

    def __call__(self, urls: Sequence[str]) -> list[FetchResult]:
        """Fetch ``urls``; blocks until each that is asked has its answer. None raises."""
        return _runner().run(_work(self, urls))


@cache
def _runner() -> asyncio.Runner:
    """Make the process's one event loop, so that names and connections outlive a batch."""
    return asyncio.Runner()


async def _work(fetcher: Fetcher, urls: Sequence[str]) -> list[FetchResult]:
    line = _BatchFetch(fetcher)
    answers = await asyncio.gather(*(line.fetch(url) for url in urls))
    return [answer for answer in answers if answer is not None]


@cache
def _session(fetcher: Fetcher) -> aiohttp.ClientSession:
    def socket_to(info: tuple) -> socket.socket:
        # The last gate: whatever way led here, this is the address that would be contacted.
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
    """So much is held that this body is left for another time."""


class _BatchFetch:
    """Work on one batch. Turns are taken for the host first: who waits for a slow host keeps no connection idle."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.fetcher = fetcher
        self.session = _session(fetcher)
        self.all = asyncio.Semaphore(fetcher.connections)
        self.hosts: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(fetcher.per_host))
        # Those that wait for a slow host or rest before another attempt leave room for as many again.
        self.room = asyncio.Semaphore(4 * fetcher.connections)
        self.held = 0
        # Bytes that are being read, by the task that reads them, the oldest first.
        self.reading: dict[object, int] = {}

    async def fetch(self, url: str) -> FetchResult | None:
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
        """Count a piece of a body. Raises _Full where it would be too much, but to the oldest while no answer is there:
        by turns each is the oldest."""
        task = asyncio.current_task()
        self.reading[task] += size
        self.held += size
        answered = self.held - sum(self.reading.values())
        if self.held > self.fetcher.most_held and (answered or task is not next(iter(self.reading))):
            raise _MemoryFull

    async def _persist(self, url: str) -> FetchResult:
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
        """Make one request with its redirects; whatever happens is an answer."""
        spent = _AttemptTimer(self.fetcher.seconds)
        at = url
        try:
            for _ in range(MOST_REDIRECTS + 1):
                target = self._target(at)
                if isinstance(target, Fault):
                    return FetchResult(url, target.about(url), final_url=at, seconds=spent.so_far())
                async with self._turn(target), spent.running(), self._request(target) as response:
                    answer = await self._answer(url, response)
                if answer is not None:
                    return replace(answer, seconds=spent.so_far())
                at = response.headers.get("Location", "")
                at = str(target.join(URL(at))) if at else ""
            detail = f"more than {MOST_REDIRECTS} redirects; the last led to {at[:200]}"
            return FetchResult(url, Fault(url, "too_many_redirects", detail), final_url=at, seconds=spent.so_far())
        except (TimeoutError, OSError, aiohttp.ClientError, ValueError) as error:
            return replace(_failed(url, error, self.fetcher.seconds), final_url=at, seconds=spent.so_far())

    def _target(self, url: str) -> URL | Fault:
        """Parse and check an address; a Fault says why it is not contacted. Names are looked up when connecting."""
        try:
            target = URL(url).with_fragment(None).with_user(None)
            host, port = target.host, target.port  # a port beyond 65535 is found only now
            if target.scheme not in ("http", "https") or not host or not port:
                return Fault(url, "bad_record", f"only http:// and https:// are fetched, not '{url[:100]}'")
            if address := numeric(host):
                self.fetcher.reach.check(address)
            if entry := self.fetcher.banned.entry(str(target)):
                return Fault(url, "banned", f"the list of banned hosts holds '{entry}'")
        except ValueError as error:
            return Fault(url, "bad_record", f"no URL: {error}"[:300])
        except BlockedAddress as error:
            return Fault(url, "blocked_address", str(error))
        return target

    @contextlib.asynccontextmanager
    async def _turn(self, target: URL) -> AsyncIterator[None]:
        async with self.hosts[target.host or ""], self.all:
            yield

    def _request(self, target: URL):
        return self.session.get(target, allow_redirects=False)

    async def _answer(self, url: str, response: aiohttp.ClientResponse) -> FetchResult | None:
        """Read a response; None for a redirect."""
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
        if directive := opted_out(headers.getall("X-Robots-Tag", ())):
            return replace(answer, fault=Fault(url, "opt_out", f"X-Robots-Tag: {directive}"))
        body = await read_body(response, self.fetcher.max_bytes, self._take)
        if isinstance(body, Fault):
            return replace(answer, fault=body.about(url))
        return replace(answer, data=body)


class _AttemptTimer:
    """Measure the time of one attempt: the clock stands still while the attempt waits for its turn."""

    def __init__(self, seconds: float) -> None:
        self._left = seconds
        self._total = seconds

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        started = time.monotonic()
        try:
            async with asyncio.timeout(max(0.0, self._left)):
                yield
        finally:
            self._left -= time.monotonic() - started

    def so_far(self) -> float:
        return round(self._total - self._left, 4)


def _failed(url: str, error: Exception, seconds: float) -> FetchResult:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, BlockedAddress):
        return FetchResult(url, Fault(url, "blocked_address", str(cause)))
    if isinstance(error, TimeoutError):
        return FetchResult(url, Fault(url, "timeout", f"no whole answer within {seconds:g} s"), passing=True)
    if isinstance(error, aiohttp.ClientPayloadError):
        return FetchResult(url, Fault(url, "truncated", f"the connection was lost: {error}"[:300]), passing=True)
    if isinstance(error, aiohttp.InvalidURL | ValueError):
        return FetchResult(url, Fault(url, "bad_record", f"no URL: {error}"[:300]))
    detail = f"no answer: {type(error).__name__}: {error}"[:300]
    # EAI_NONAME: there is no such name, which no second attempt changes.
    gone = isinstance(cause, socket.gaierror) and cause.errno == socket.EAI_NONAME
    return FetchResult(url, Fault(url, "missing", detail), passing=not gone)


def _pause(answer: FetchResult, attempt: int) -> float:
    """Return the seconds before the next attempt: never less than the host asked for.

    Doubled each time, and spread by a half so that hosts are not hit in step.
    """
    return max(FIRST_PAUSE * 2 ** (attempt - 1) * random.uniform(0.5, 1.5), answer.retry_after)
