"""Define the outcome of fetching one URL: the image's bytes, or a fault."""

from dataclasses import dataclass, field

from pairmill.ops.fault import Fault


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
