"""A proxy before an HTTP server: on demand it answers 503, resets connections, or is slow."""

from __future__ import annotations

import socket
import struct
import threading
import time
from types import TracebackType
from typing import Self

BUSY = b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
SLOW_SECONDS = 0.5


class BadProxy:
    """Forward connections on loopback; ``trouble`` is '', '503', 'reset' or 'slow', and holds for open ones too."""

    def __init__(self, host: str, port: int) -> None:
        self._behind = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.trouble = ""

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._behind)
            except OSError:
                return
            for source, target, is_request in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, target, is_request), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        try:
            while data := source.recv(65_536):
                if is_request and self.trouble:
                    if self.trouble != "slow":
                        self._refuse(source)
                        break
                    time.sleep(SLOW_SECONDS)
                target.sendall(data)
        except OSError:
            pass
        for each in (source, target):
            each.close()

    def _refuse(self, client: socket.socket) -> None:
        """Answer 503, or reset the connection."""
        if self.trouble == "503":
            client.sendall(BUSY)
        else:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
