"""Answer prompts, with or without an image, by a model behind OpenAI-compatible endpoints."""

from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_client import ChatClient
from pairmill.ops.models.http.chat_messages import messages
from pairmill.ops.models.http.http_spec import parse_http

# Maximum requests in flight or answered but not yet fetched: a few bytes each, so one slow request delays no other.
UNDER_WAY = 1024


@dataclass(frozen=True)
class HttpModel:
    """Answer prompts by the model ``spec`` ('http:NAME@https://host/v1,https://host2/v1'), greedily: temperature 0.

    A refused request becomes an error of its row; if all requests would be refused, ModelError is raised.

    Only the model's name is part of a scorer's identity. ``encoding`` is that of images in requests, 'png' or
    'jpeg-QUALITY'; it changes answers. ``key``, ``connections`` and ``known`` are those of `ChatClient`.
    """

    spec: str
    encoding: str = "jpeg-90"
    key: str = ""
    connections: int = 256
    known: tuple[str, ...] = ()
    batch_size: int = 1
    version: int = 1

    max_in_flight: ClassVar[int] = UNDER_WAY
    answer_settings: ClassVar[tuple[str, ...]] = ("encoding",)
    shows_images: ClassVar[bool] = False

    def load(self) -> None:
        """Open the client. Raises ModelError if the environment variable of the key is empty.

        An unreachable endpoint is noticed only at the first request.
        """
        _client(self.spec, self.key, self.connections, self.known)

    def fitted(self, prompt: str, side: int, max_tokens: int) -> "HttpModel":
        """Return this model unchanged: the server batches requests itself."""
        return self

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Return one batch per row: each row is a request."""
        return [[row] for row in range(len(prompts))]

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> list[bytes]:
        """Encode images and prompts as JSON messages."""
        return [messages(*each, self.encoding) for each in zip(pictures, prompts, strict=True)]

    def infer(self, prepared: list[bytes], max_tokens: int) -> list[Future[Generation]]:
        """Send the requests; block until the endpoints have room for them, and return futures of the answers."""
        client = _client(self.spec, self.key, self.connections, self.known)
        return [client.submit(each, max_tokens) for each in prepared]

    def fetch(self, running: list[Future[Generation]]) -> list[Generation]:
        """Wait for the answers and return them in row order."""
        return [each.result() for each in running]


def http_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> HttpModel:
    """Return the captioner's model behind endpoints; the server decides precision and batches."""
    return HttpModel(spec, encoding)


def http_fuser(spec: str, precision: str, batch_size: int) -> HttpModel:
    """Return the model behind endpoints that fuses texts; it gets no image."""
    return HttpModel(spec)


@cache
def _client(spec: str, key: str, connections: int, known: tuple[str, ...]) -> ChatClient:
    """Return the process's only client of a model, so that the state of its endpoints outlives a work item."""
    return ChatClient(parse_http(spec), key, connections, known)
