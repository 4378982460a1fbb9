"""A proxy on loopback with injected failures: error statuses, delays, silence, dropped connections.

If a response is cut off ("cut"), the server may have received the whole request; after "reset" it received nothing.
"""

from __future__ import annotations

import http.client
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from urllib.parse import urlsplit

SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
SLOW_SECONDS = 0.2
ILLS = ("500", "503", "reset", "cut", "slow")
SILENT_SECONDS = 5.0


class Unwell:
    """State of the proxy: a ``share`` of requests fails in one of ILLS, by a seeded chance; ``done`` counts them."""

    def __init__(self, share: float, seed: int) -> None:
        self.share, self._chance, self._lock = share, random.Random(seed), threading.Lock()
        self.done: Counter[str] = Counter()
        self.after = 0  # so many requests are well in any case
        self.over = threading.Event()
        self.address = ""
        self.page = 0  # so many keys a page of a listing; 0: as many as S3 gives
        self.before_page: Callable[[int], object] = lambda n: None  # called before page ``n`` of a listing, from 1
        self._n_pages = 0

    def ill(self) -> str:
        """Draw the failure of the next request, 'well' for none."""
        with self._lock:
            is_ill = self.done.total() >= self.after and self._chance.random() < self.share
            found = self._chance.choice(ILLS) if is_ill else "well"
            self.done[found] += 1
            return found

    def asked_as(self, path: str) -> str:
        """What the server behind is asked: of a listing one small page."""
        if not self.page or "list-type=2" not in path:
            return path
        self._n_pages = self._n_pages + 1 if "continuation-token" in path else 1
        self.before_page(self._n_pages)
        return f"{path}&max-keys={self.page}"

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
        state.over.set()
        server.shutdown()
        server.server_close()


def _handler(state: Unwell, behind: str) -> type[BaseHTTPRequestHandler]:
    local = threading.local()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            ill = state.ill()
            if ill in ("reset", "silent"):
                state.over.wait(SILENT_SECONDS if ill == "silent" else 0)
                self.close_connection = True
            elif ill in ("500", "503"):
                self._answer(int(ill), [("Content-Type", "application/xml")], SLOW_DOWN if ill == "503" else b"")
            else:
                sleep(SLOW_SECONDS if ill == "slow" else 0)
                self._pass_on(ill == "cut")

        do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        def handle_expect_100(self) -> bool:
            going_on = super().handle_expect_100()
            self.wfile.flush()  # it waits for that before it sends its body
            return going_on

        def _pass_on(self, cut: bool) -> None:
            if not hasattr(local, "connection"):
                local.connection = http.client.HTTPConnection(behind)
            headers = {name: value for name, value in self.headers.items() if name != "Expect"}
            local.connection.request(self.command, state.asked_as(self.path), self._body or None, headers)
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
