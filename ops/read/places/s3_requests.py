"""Send requests to S3 through s3fs: retry and count transient failures; never treat a failure as the end of a file.

botocore retries refused requests. s3fs's own retries are disabled: they count nothing, and multiply botocore's by five.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import aiohttp
import s3fs
from botocore.exceptions import BotoCoreError, ClientError, IncompleteReadError, ResponseStreamingError

from pairmill.ops.read.places import retries
from pairmill.ops.read.places.tree import SourceError

# A place that cannot be reached is given up after some 30 s; a place that stops responding, after 3 minutes.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 30, 5
# botocore retries requests that are refused or not answered, but not a response that breaks off.
BROKEN_OFF = (aiohttp.ClientPayloadError, ResponseStreamingError, IncompleteReadError, ConnectionError)
WAITS = (0.2, 0.4, 0.8, 1.6)
UNREACHABLE = (BotoCoreError, ClientError, OSError, asyncio.TimeoutError, aiohttp.ClientError)


@cache
def filesystem() -> Any:
    """Create the process's one S3 file system; it is never pickled."""
    usual = {"AWS_MAX_ATTEMPTS": ("total_max_attempts", ATTEMPTS), "AWS_RETRY_MODE": ("mode", "standard")}
    found = s3fs.S3FileSystem(
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": dict(setting for name, setting in usual.items() if name not in os.environ),
        },
        use_listings_cache=False,
    )
    found.retries = 1  # s3fs would retry five times on top of botocore
    client: Any = found.s3
    for event in ("after-call.s3", "after-call-error.s3"):
        client.meta.events.register(event, _count)
    return found


def _count(parsed: dict[str, Any] | None = None, exception: Any = None, **_: object) -> None:
    """Count the retries of a finished request; botocore calls this after success and failure."""
    said = parsed if parsed is not None else getattr(exception, "response", None) or {}
    retries.add(said.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def range_of(uri: str, start: int, end: int) -> bytes:
    """Read bytes [start, end) of an object. Raises SourceError if S3 fails or the object became shorter."""
    found = told(uri, lambda: again(lambda: filesystem().cat_file(uri, start=start, end=end)))
    if len(found) < end - start:
        raise SourceError(f"'{uri}' became shorter while it was read; run again")
    return found


Asked = TypeVar("Asked")


def again(ask: Callable[[], Asked]) -> Asked:
    """Call ``ask``; retry up to ``len(WAITS)`` times if the response breaks off. Raises the last attempt's error."""
    for wait in WAITS:
        try:
            return ask()
        except BROKEN_OFF:
            retries.add()
            time.sleep(wait)
    return ask()


def told(uri: str, ask: Callable[[], Asked]) -> Asked:
    """Call ``ask``, and raise S3's failures as SourceError; FileNotFoundError and PermissionError pass unchanged."""
    try:
        return ask()
    except (FileNotFoundError, PermissionError):
        raise
    except UNREACHABLE as error:
        raise SourceError(cannot(uri, error)) from error


def cannot(uri: str, error: Exception) -> str:
    """Write the message for a failed read, with the remedy."""
    return f"'{uri}' cannot be read from S3: {error}; run again, what is finished is kept"
