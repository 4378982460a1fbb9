"""Resolve host names to addresses that may be contacted, and cache the results."""

import asyncio
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from aiohttp.abc import AbstractResolver, ResolveResult

from pairmill.ops.fetch.address import AllowedAddresses, BlockedAddress

KEEP_SECONDS = 300.0
# Entries of the cache: lists of links name hosts by the hundred thousand. The oldest entry is evicted first.
MOST_NAMES = 50_000
# A lookup of a dead name may occupy its thread for ten seconds.
THREADS = 32
Lookup = Callable[[str, int, socket.AddressFamily], list[ResolveResult]]


def system_lookup(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    """Resolve ``host`` with the operating system's resolver. Raises OSError (gaierror) if the host has no address."""
    found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    results = {}
    for kind, _, protocol, _, address in found:
        text = str(address[0])
        results.setdefault(text, ResolveResult(hostname=host, host=text, port=port, family=kind, proto=protocol,
                                               flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV))  # fmt: skip
    return list(results.values())


@dataclass
class CachingResolver(AbstractResolver):
    """Resolve host names for aiohttp; cache each result, success or error, for five minutes.

    Concurrent requests for one name share one lookup. A name is blocked if any of its addresses is blocked, because a
    mix of public and private addresses is a mistake or an attack.
    """

    reach: AllowedAddresses
    lookup: Lookup = system_lookup
    _known: dict[tuple[str, int, int], tuple[float, asyncio.Future]] = field(default_factory=dict)
    _threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS, "names"))

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve ``host`` to its addresses. Raises BlockedAddress, or the OSError of the lookup."""
        key = (host, port, family)
        if (found := self._known.get(key)) is None or found[0] < time.monotonic():
            while len(self._known) >= MOST_NAMES:
                del self._known[next(iter(self._known))]
            work = asyncio.get_running_loop().run_in_executor(self._threads, self._ask, host, port, family)
            found = self._known[key] = (time.monotonic() + KEEP_SECONDS, work)
        answer = await asyncio.shield(found[1])
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _ask(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult] | OSError:
        """Look up ``host`` and check its addresses; return an OSError instead of raising it, to make it cacheable."""
        try:
            found = self.lookup(host, port, family)
            for each in found:
                self._check(host, each["host"])
            return found
        except UnicodeError as error:  # for example a label of more than 63 characters
            return OSError(f"'{host}' is no host name: {error}")
        except OSError as error:
            return error

    def _check(self, host: str, address: str) -> None:
        """Raise BlockedAddress, with the host name, unless ``address`` may be contacted."""
        try:
            self.reach.check(address)
        except BlockedAddress as error:
            raise BlockedAddress(f"'{host}' leads to {error}") from None

    async def close(self) -> None:
        """Clear the cache; aiohttp calls this when the session closes."""
        self._known.clear()
