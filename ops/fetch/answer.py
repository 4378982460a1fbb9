"""Hold what became of one address: its picture's bytes, or why there are none."""

from __future__ import annotations

from dataclasses import dataclass, field

from pairmill.ops.fault import Fault


@dataclass(frozen=True)
class FetchResult:
    """The outcome of one address; ``fault`` is None exactly when ``data`` holds a picture that may be used.

    ``http_status`` is the last answer's, 0 where nobody answered; ``final_url`` is where redirects ended. ``passing``
    means that the same address may answer another time (time-outs, 429, 5xx, lost connections). ``attempts`` counts
    requests without redirects; ``seconds`` is the time of all attempts without waiting for a turn; ``retry_after`` is
    the wait in seconds that the host asked for.
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
