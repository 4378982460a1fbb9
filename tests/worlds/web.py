"""A web server on loopback whose paths behave well or badly, with a record of all requests."""

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
from PIL import Image

Manner = Callable[["Handler"], None]
LOOPBACK = ("127.0.0.1/32",)


def photograph(seed: int = 0, side: int = 96, format: str = "JPEG") -> bytes:
    """Return an encoded image of random pixels."""
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format)
    return file.getvalue()


class Handler(BaseHTTPRequestHandler):
    """Answer each path by its configured behaviour (``manners``), 404 without one."""

    protocol_version = "HTTP/1.1"
    server: "Web"

    def do_GET(self) -> None:
        with self.server.counting:
            self.server.asked[self.path] += 1
            self.server.open += 1
            self.server.most_open = max(self.server.most_open, self.server.open)
        try:
            manner = self.server.manners.get(self.path.partition("?")[0])
            manner(self) if manner else self.answer(404, b"<html>gone</html>")
        except OSError:  # the client closed the connection
            self.close_connection = True
        finally:
            with self.server.counting:
                self.server.open -= 1

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class Web(ThreadingHTTPServer):
    """The server: behaviours by path, requests by path, and the most concurrent requests."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, host: str) -> None:
        super().__init__((host, 0), Handler)
        self.manners: dict[str, Manner] = {}
        self.asked: Counter[str] = Counter()
        self.counting = threading.Lock()
        self.open = self.most_open = 0

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{self.server_address[0]}:{self.server_address[1]}{path}"

    def handle_error(self, request: object, client_address: object) -> None:
        pass


@contextmanager
def web(host: str = "127.0.0.1") -> Iterator[Web]:
    """Run a server until the end of the block."""
    server = Web(host)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def picture(data: bytes, **headers: str) -> Manner:
    """Answer with an image."""
    return lambda handler: handler.answer(200, data, **headers)


def status(code: int, **headers: str) -> Manner:
    """Answer with a status code."""
    return lambda handler: handler.answer(code, b"no", **headers)


def redirect(to: str) -> Manner:
    """Answer with a redirect."""
    return lambda handler: handler.answer(302, b"", Location=to)


def first(n: int, bad: Manner, good: Manner) -> Manner:
    """Behave as ``bad`` for the first ``n`` requests of a path, then as ``good``."""
    return lambda handler: (bad if handler.server.asked[handler.path] <= n else good)(handler)


def drip(data: bytes, seconds: float) -> Manner:
    """Send one byte, then pause for ``seconds``."""

    def manner(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:1])
        handler.wfile.flush()
        time.sleep(seconds)

    return manner


def cut_short(data: bytes) -> Manner:
    """Send half of the announced length, then close the connection."""

    def manner(handler: Handler) -> None:
        handler.answer(200, data[: len(data) // 2], Content_Length=str(len(data)))
        handler.close_connection = True

    return manner


def unannounced(data: bytes) -> Manner:
    """Send bytes without a length until the connection closes, as HTTP/1.0 does."""

    def manner(handler: Handler) -> None:
        handler.send_response(200)
        handler.send_header("Connection", "close")
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    return manner
