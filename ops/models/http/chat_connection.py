"""Send single requests to endpoints, each with a timeout, and read the endpoints' descriptions."""

import asyncio
import json
import os
import re
import statistics
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from pairmill.ops.models.http.chat_messages import Bounds, Cleaner, Outcome, Refused, RetryableFailure, read, request
from pairmill.ops.models.http.endpoint import Endpoint
from pairmill.ops.models.http.http_spec import HttpSpec
from pairmill.ops.models.model_error import ModelError

# After 20 answers, the timeout of a request is 10 times their median.
TIMES_MEDIAN, ANSWERS_TO_TELL = 10, 20
CONNECT_SECONDS = 10.0
MOST_BODY = 8_000_000
MOST_NAME, MOST_ERROR = 80, 200
# OpenAI's error for `max_tokens`. Other servers name both settings in the error for a limit that is too large.
OTHER_NAME = re.compile(r"(not supported|unsupported).*max_completion_tokens", re.IGNORECASE)


class ChatConnection:
    """Connections to the endpoints of one model, in one event loop.

    A request times out after ``most_seconds``, or earlier once typical times are known. ``key`` is the name of the
    environment variable with the endpoints' key, '' for none. Raises ModelError if that variable is empty.
    """

    def __init__(self, spec: HttpSpec, key: str, most_seconds: float) -> None:
        self.spec, self._key, self._most = spec, _key(spec, key), most_seconds
        self._cleaner = Cleaner(self._key)
        self._proxies = {url: _proxy(url) for url in spec.endpoints}
        self._took: deque[float] = deque(maxlen=50)
        self._limits: set[asyncio.Timeout] = set()

    async def open(self) -> None:
        """Open the HTTP session; call it in the event loop that will send the requests."""
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._key}"} if self._key else None,
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def ask(self, endpoint: Endpoint, messages: bytes, max_tokens: int) -> Outcome:
        """Send one request to an endpoint; return the parsed response. Raises ModelError as `read` does."""
        limit_name, seconds = endpoint.limit_name, self._most_seconds()
        body = request(self.spec.name, messages, max_tokens, limit_name)
        try:
            async with (
                self._within(seconds),
                self._session.post(
                    f"{endpoint.url}/chat/completions",
                    data=body,
                    headers={"Content-Type": "application/json"},
                    allow_redirects=False,
                    **self._proxies[endpoint.url],
                ) as response,
            ):
                status, headers, data = response.status, response.headers, await _body(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return RetryableFailure(self._in_a_line(error), "unreachable")
        except TimeoutError:
            return RetryableFailure(f"no answer within {min(seconds, self._most_seconds()):.0f} s", "late")
        except (OSError, aiohttp.ClientError) as error:
            return RetryableFailure(self._in_a_line(error), "broken")
        endpoint.server = self._cleaner.line(headers.get("Server", ""), MOST_NAME)
        bounds = Bounds(max_tokens, len(body))
        outcome = read(status, headers, data, self.where(endpoint), self._cleaner, bounds)
        if limit_name == "max_tokens" and isinstance(outcome, Refused) and OTHER_NAME.search(outcome.said):
            endpoint.limit_name = "max_completion_tokens"  # newer models of OpenAI require this name
            return RetryableFailure("it wants the token limit by another name", "renamed")
        return outcome

    def took(self, seconds: float) -> None:
        """Record how many seconds an answer took.

        When typical times become known, the timeouts of requests in flight are shortened too.
        """
        self._took.append(seconds)
        if len(self._took) == ANSWERS_TO_TELL:
            until = asyncio.get_running_loop().time() + self._most_seconds()
            for limit in self._limits:
                if (at := limit.when()) is not None and until < at:
                    limit.reschedule(until)

    async def described(self, endpoint: Endpoint) -> str:
        """Return an endpoint's own description in ASCII: its Server header, the model's owner, its version."""
        models = await self._looked_up(endpoint, f"{endpoint.url}/models")
        listed = models.get("data")
        own = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        owner = next((each.get("owned_by", "") for each in own if each.get("id") == self.spec.name), "")
        version = (await self._looked_up(endpoint, f"{endpoint.url.removesuffix('/v1')}/version")).get("version", "")
        said = " ".join(self._cleaner.line(str(each), MOST_NAME) for each in (endpoint.server, owner, version) if each)
        return said.encode("ascii", "replace").decode()

    def where(self, endpoint: Endpoint) -> str:
        """Return a phrase that names model and endpoint, for messages."""
        return f"model 'http:{self.spec.name}' at {endpoint.url}"

    def _in_a_line(self, error: Exception) -> str:
        """Format an error in one line, without the key."""
        # aiohttp quotes the unreadable part of a response.
        return self._cleaner.line(f"{type(error).__name__}: {error}".replace("\\n", " "), MOST_ERROR)

    def _most_seconds(self) -> float:
        """Return the current timeout: 10 times the median once it is known, a tenth of the maximum at least."""
        if len(self._took) < ANSWERS_TO_TELL:
            return self._most
        return min(self._most, max(self._most / 10, TIMES_MEDIAN * statistics.median(self._took)))

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Apply a timeout to the body; `took` may shorten it."""
        async with asyncio.timeout(seconds) as limit:
            self._limits.add(limit)
            try:
                yield
            finally:
                self._limits.discard(limit)

    async def _looked_up(self, endpoint: Endpoint, url: str) -> dict:
        """Return the JSON object at a URL, {} if there is none: not every server has these pages."""
        with suppress(TimeoutError, OSError, aiohttp.ClientError, ValueError, RecursionError):
            asked = self._session.get(url, allow_redirects=False, **self._proxies[endpoint.url])
            async with asyncio.timeout(CONNECT_SECONDS), asked as response:
                found = json.loads(await _body(response)) if response.status == 200 else {}
                return found if isinstance(found, dict) else {}
        return {}


async def _body(response: aiohttp.ClientResponse) -> bytes:
    """Read a body, truncated to about MOST_BODY bytes."""
    data = b""
    while len(data) < MOST_BODY and (more := await response.content.read(MOST_BODY)):
        data += more
    return data


def _proxy(url: str) -> dict[str, Any]:
    """Return aiohttp's arguments for the environment's proxy.

    The proxy's password goes into a header, so that no error shows it. Credentials in `~/.netrc`, which aiohttp could
    read too, are never sent: only a named variable supplies a key.
    """
    asked = urlsplit(url)
    proxy = "" if proxy_bypass(asked.hostname or "") else getproxies().get(asked.scheme, "")
    if not proxy:
        return {}
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    if parts.username is None:
        return {"proxy": place}
    authorization = aiohttp.encode_basic_auth(unquote(parts.username), unquote(parts.password or ""))
    return {"proxy": place, "proxy_headers": {"Proxy-Authorization": authorization}}


def _key(spec: HttpSpec, variable: str) -> str:
    """Return the key in an environment variable, '' for no name. ModelError unless a line of printable ASCII."""
    value = os.environ.get(variable, "") if variable else ""
    if variable and (not value or not value.isascii() or not value.isprintable()):
        raise ModelError(
            f"model 'http:{spec.name}': the variable {variable} holds no key, or one with a line end; set it on every "
            "machine that has a worker"
        )
    return value
