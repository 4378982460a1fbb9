"""A proxy on loopback with injected failures: error statuses, delays, dropped connections."""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from urllib.parse import urlsplit

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
SLOW_SECONDS = 0.2
ILLS = ("500", "503", "reset", "cut", "slow")


class Unwell:
    """State of the proxy: a ``share`` of requests fails in one of ILLS, by a seeded chance; ``done`` counts them."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self._chance, self._lock = share, random.Random(seed), threading.Lock()
        self.done: Counter[str] = Counter()
        self.address = ""

    def ill(self) -> str:
        """Draw the failure of the next request, 'well' for none."""
        with self._lock:
            found = self._chance.choice(ILLS) if self._chance.random() < self.share else "well"
            self.done[found] += 1
            return found

    @property
    def n_failed(self) -> int:
        """The number of failed requests; slow ones do not count."""
        return sum(self.done[ill] for ill in ILLS if ill != "slow")


@contextmanager
def unwell(behind: str, share: float, seed: int = 1) -> Iterator[Unwell]:
    """Run the proxy in front of the server at ``behind``; yield its state."""
    state = Unwell(share, seed)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(state, urlsplit(behind).netloc))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def _handler(state: Unwell, behind: str) -> type[BaseHTTPRequestHandler]:
    local = threading.local()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            ill = state.ill()
            if ill == "reset":
                self.close_connection = True
            elif ill in ("500", "503"):
                self._answer(int(ill), [("Content-Type", "application/xml")], SLOW_DOWN if ill == "503" else b"")
            else:
                sleep(SLOW_SECONDS if ill == "slow" else 0)
                self._pass_on(ill == "cut")

        do_HEAD = do_GET

        def _pass_on(self, cut: bool) -> None:
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPConnection(behind)
            local.connection.request(self.command, self.path, headers=dict(self.headers))
            answer = local.connection.getresponse()
            body = answer.read()
            size = answer.headers.get("Content-Length", "0")
            kept = [(k, v) for k, v in answer.getheaders() if k.lower() not in ("content-length", "connection")]
            if cut and len(body) < 2:  # too short to cut: drop the connection before the response
                self.close_connection = True
                return
            self._answer(answer.status, kept, body, size, cut)

        def _answer(self, status: int, headers: list, body: bytes, size: str = "", cut: bool = False) -> None:
            self.send_response(status)
            for name, value in [*headers, ("Content-Length", size if self.command == "HEAD" else str(len(body)))]:
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body[: len(body) // 2] if cut else body)
            self.close_connection |= cut

        def log_message(self, *_: object) -> None:
            pass

    return Handler
