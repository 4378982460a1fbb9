"""Answer prompts about pictures, or of themselves, with a model behind OpenAI-compatible endpoints."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_client import ChatClient
from pairmill.ops.models.http.chat_request import messages
from pairmill.ops.models.http.http_spec import parse_http

# Requests that may be under way or answered and not yet taken: few bytes each, and one that is slow holds up no other.
UNDER_WAY = 1024


@dataclass(frozen=True)
class HttpModel:
    """Answer prompts by ``spec`` ('http:NAME@https://host/v1,https://host2/v1'), greedily: temperature 0.

    ``encoding`` ('png', 'jpeg-QUALITY') is how pictures are sent, and part of what the answers depend on, as are NAME
    and prompts. The others are placement: the variable that holds the ``key``, the most ``connections`` at once at an
    endpoint, and the answers to the probe's questions that are ``known``. What a server refuses of a single request is
    an error of that row; what it refuses of all raises ModelError.
    """

    spec: str
    encoding: str = "jpeg-90"
    key: str = ""
    connections: int = 256
    known: tuple[str, ...] = ()
    batch_size: int = 1
    version: int = 1

    max_in_flight: ClassVar[int] = UNDER_WAY

    def load(self) -> None:
        """Connect. Raises ModelError when the key is missing; whether anybody is there, the first request tells."""
        self._client()

    def fitted(self, prompt: str, side: int, max_tokens: int) -> HttpModel:
        """Return this model: its server makes batches of what it is asked."""
        return self

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Give each row its own request."""
        return [[row] for row in range(len(prompts))]

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> list[bytes]:
        """Encode pictures and prompts as messages."""
        return [messages(*each, self.encoding) for each in zip(pictures, prompts, strict=True)]

    def infer(self, prepared: list[bytes], max_tokens: int) -> list[Future[Generation]]:
        """Send requests as there is room for them at the endpoints."""
        return [self._client().submit(each, max_tokens) for each in prepared]

    def fetch(self, running: list[Future[Generation]]) -> list[Generation]:
        """Wait for the answers."""
        return [each.result() for each in running]

    def generate(self, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate an answer a row, in the order given."""
        return self.fetch(self.infer(self.prepare(pictures, prompts), max_tokens))

    def _client(self) -> ChatClient:
        return _client(self.spec, self.key, self.connections, self.known)


@cache
def _client(spec: str, key: str, connections: int, known: tuple[str, ...]) -> ChatClient:
    """Make the process's one client of a model: what it learned of the endpoints outlives an item."""
    return ChatClient(parse_http(spec), key, connections, known)
