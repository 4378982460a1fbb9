"""Define the outcome of fetching one URL: the image's bytes, or a fault."""

from __future__ import annotations

from dataclasses import dataclass, field

from pairmill.ops.fault import Fault


@dataclass(frozen=True)
class FetchResult:
    """The outcome of fetching one URL; ``fault`` is None exactly when ``data`` holds a usable image.

    ``http_status`` is the status of the last response, 0 if there was none. ``final_url`` is the URL after redirects.
    ``passing`` marks a transient failure (timeout, 429, 5xx, lost connection): a later retry may succeed. ``attempts``
    counts requests without redirects. ``seconds`` is the time of all attempts without the wait for a connection slot.
    ``retry_after`` is the wait in seconds that the host asked for.
    """

    url: str
    fault: Fault | None = None
    passing: bool = False
    http_status: int = 0
    final_url: str = ""
    content_type: str = ""
    etag: str = ""
    last_modified: str = ""
    data: bytes = field(default=b"", repr=False)
    attempts: int = 1
    seconds: float = 0.0
    retry_after: float = 0.0
