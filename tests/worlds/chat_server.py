"""A strict /v1/chat/completions server in a separate process, with failures that a test sets.

The server decodes each image and answers with a hash of its pixels, so that a swapped image is detected. Failures
depend on (image, attempt) only: the outcome of one image depends on nothing else.

``python tests/worlds/chat_server.py PORT SETTINGS.json`` runs the server, ``--fork`` forks servers on demand. GET /log
returns a server's counts (requests, the most concurrent ones).
"""

import asyncio
import base64
import hashlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from aiohttp import web
from PIL import Image

FAILURES = ("429", "500", "hang", "reset", "truncated", "no_choices", "503")


def picture_hash(pixels: np.ndarray) -> str:
    """Return the text that the server answers for an image."""
    return hashlib.sha256(np.ascontiguousarray(pixels).tobytes() + str(pixels.shape).encode()).hexdigest()[:16]


class Server:
    """The state of one server; ``settings`` determine its failures, see `told`. ``command`` starts it anew."""

    def __init__(self, settings: dict[str, Any], command: list[str]) -> None:
        self.settings = settings
        self.command = command
        self.attempts: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.now = self.peak = self.requests = 0
        self.room = asyncio.Semaphore(settings.get("slots", 1000))

    def told(self, name: str) -> str:
        """Return how the next attempt at this image fails, '' for success.

        ``always`` maps images to failures; ``once`` maps images to failures of their first attempt; a ``share`` of all
        (image, attempt) fails in one of the ``ways``.
        """
        attempt = self.attempts[name]
        self.attempts[name] += 1
        if how := self.settings.get("always", {}).get(name, self.settings.get("everything", "")):
            return how
        if attempt == 0 and (how := self.settings.get("once", {}).get(name)):
            return how
        roll = int(hashlib.sha256(f"{name} {attempt}".encode()).hexdigest()[:8], 16)
        if roll / 2**32 < self.settings.get("share", 0.0):
            ways = self.settings.get("ways", FAILURES)
            return ways[roll % len(ways)]
        return ""

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Validate and answer a completion request."""
        if self.settings.get("key") and request.headers.get("Authorization") != f"Bearer {self.settings['key']}":
            return _error(401, f"no such key: {request.headers.get('Authorization')}", "invalid_api_key")
        if self.settings.get("proxy", "") != request.headers.get("Proxy-Authorization", ""):
            return _error(407, "who are you?", "proxy")
        body = await request.json()
        if bad := _wrong(body, self.settings.get("model", ""), self.settings.get("limit", "max_tokens")):
            return bad
        self.requests += 1
        self.now += 1
        self.peak = max(self.peak, self.now)
        try:
            return await self._answer(request, body)
        finally:
            self.now -= 1

    async def _answer(self, request: web.Request, body: dict) -> web.StreamResponse:
        name, prompt = _asked(body["messages"][0]["content"])
        how = self.told(name)
        async with self.room:
            await asyncio.sleep(self.settings.get("seconds", 0.005))
        text = self.settings.get("prefix", "") + (f"picture {name}" if name != "text" else f"echo {prompt}")
        text = self.settings.get("said", {}).get(name, text)
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": text},
        }
        usage = self.settings.get("usage", {"prompt_tokens": 100, "completion_tokens": 10})
        match how:
            case "429":
                return _error(429, "slow down", "rate_limit", {"Retry-After": "0.05"})
            case "busy" | "tomorrow":
                return _error(429, "slow down", "rate_limit", {"Retry-After": "1" if how == "busy" else "86400"})
            case "quota":
                return _error(429, "you exceeded your current quota", "insufficient_quota")
            case "500" | "503" | "404" | "403":
                return _error(int(how), "out of order", "server_error")
            case "hang":
                await asyncio.sleep(3600)
            case "reset":
                assert request.transport is not None
                request.transport.abort()
            case "die":
                os.execv(self.command[0], self.command)  # drops all connections and counts, then starts anew
            case "too_long":
                return _error(400, "This model's maximum context length is 4096 tokens", "context_length_exceeded")
            case "withheld":
                return _error(400, "the prompt triggered a content policy", "content_filter")
            case "key":
                return _error(400, f"{request.headers['Authorization']} may not send pictures", "invalid_request_error")
            case "bad_request":
                return _error(400, "cannot identify image file", "invalid_request_error")
            case "null":
                choice["message"]["content"] = None
            case "empty":
                choice["message"]["content"] = ""
            case "refusal":
                choice["message"] |= {"content": None, "refusal": "I can't help with that."}
            case "filter":
                choice |= {"finish_reason": "content_filter", "message": {"role": "assistant", "content": ""}}
            case "length":
                choice["finish_reason"] = "length"
            case "half":
                choice["message"]["content"] = "half of a bear: \ud83d"
            case "unicode":
                choice["message"]["content"] = UNICODE
            case "no_choices":
                return web.json_response({"choices": [], "usage": usage})
            case "truncated":
                return web.Response(
                    body=json.dumps({"choices": [choice], "usage": usage})[:40], content_type="application/json"
                )
        self.answered[name] += 1
        headers = {"Server": self.settings["server"]} if "server" in self.settings else None
        return web.json_response({"model": body["model"], "choices": [choice], "usage": usage}, headers=headers)

    async def log(self, _: web.Request) -> web.Response:
        """Return the counts of requests."""
        return web.json_response({"peak": self.peak, "requests": self.requests, "answered": dict(self.answered)})

    async def models(self, _: web.Request) -> web.Response:
        """List the served model."""
        return web.json_response({"data": [{"id": self.settings.get("model", "fake"), "owned_by": "tests"}]})


UNICODE = "Ein Bär 🐻‍❄️ — “naïve”, 写真, שלום"


def _asked(content: Any) -> tuple[str, str]:
    """Return the hash of the request's decoded image ('text' without one) and the prompt."""
    if isinstance(content, str):
        return "text", content
    url = next(part["image_url"]["url"] for part in content if part["type"] == "image_url")
    prompt = next(part["text"] for part in content if part["type"] == "text")
    kind, _, data = url.partition(";base64,")
    assert kind in ("data:image/png", "data:image/jpeg"), kind
    return picture_hash(np.asarray(Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB"))), prompt


def _wrong(body: dict, model: str, limit: str) -> web.Response | None:
    """Return the error of an invalid request, None for a valid one."""
    known = {"model", "messages", limit, "temperature", "stream"}
    if limit not in body:
        return _error(400, f"Unsupported parameter. Use '{limit}' instead.", "unsupported_parameter")
    if extra := body.keys() - known:
        return _error(400, f"unknown parameters: {sorted(extra)}", "invalid_request_error")
    if model and body["model"] != model:
        return _error(404, f"the model {body['model']} does not exist", "model_not_found")
    if body["temperature"] != 0 or body["stream"] or len(body["messages"]) != 1 or body[limit] < 1:
        return _error(400, "not greedy, or not one message", "invalid_request_error")
    return None


def _error(status: int, message: str, code: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"error": {"message": message, "code": code}}, status=status, headers=headers)


def main(port: int, file: str) -> None:
    """Serve on loopback, with the settings of ``file``, until killed."""
    server = Server(json.loads(Path(file).read_text()), [sys.executable, __file__, str(port), file])
    app = web.Application(client_max_size=64_000_000)
    app.router.add_post("/v1/chat/completions", server.complete)
    app.router.add_get("/v1/models", server.models)
    app.router.add_get("/log", server.log)
    web.run_app(app, host="127.0.0.1", port=port, print=lambda *_: None, handle_signals=True)


def fork_servers() -> None:
    """Fork a server for each line ``PORT FILE`` of standard input and print its process id."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the servers
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            port, file = line.rstrip("\n").split(" ", 1)
            main(int(port), file)
            os._exit(0)
        print(pid, flush=True)


class ServerProcess:
    """A server that another process forked. Its file descriptor keeps its id from naming a later process."""

    def __init__(self, pid: int) -> None:
        self._descriptor = os.pidfd_open(pid)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Return whether the process ends within ``seconds``."""
        return bool(select.select([self._descriptor], [], [], seconds)[0])

    def kill(self) -> None:
        """Kill the process and wait for its end."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)
        assert self.has_ended(60)

    def close(self) -> None:
        """Kill the process and forget it."""
        self.kill()
        os.close(self._descriptor)


@cache
def _forking() -> subprocess.Popen[str]:
    """Start the process that forks servers: it imports aiohttp and numpy once, for 0.5 CPU s, not once a server."""
    command = [sys.executable, __file__, "--fork"]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def chat_server(port: int, folder: Path, **settings: Any) -> Iterator[ServerProcess]:
    """Run a server on loopback in a separate process until the end of the block.

    A server that an image kills starts again, as a supervisor would start it.
    """
    file = folder / f"chat-{port}-{time.monotonic_ns()}.json"
    file.write_text(json.dumps(settings))
    forking = _forking()
    assert forking.stdin and forking.stdout
    print(port, file, file=forking.stdin, flush=True)
    process = ServerProcess(int(forking.stdout.readline()))
    try:
        _wait(port, process)
        yield process
    finally:
        process.close()


def _wait(port: int, process: ServerProcess) -> None:
    """Wait until the server answers."""
    for _ in range(600):
        try:
            log(port)
            return
        except OSError:
            assert not process.has_ended(0.05), "the server ended"
    raise AssertionError("the server does not answer")


def log(port: int) -> dict[str, Any]:
    """Return the counts of the server on this port."""
    with urlopen(f"http://127.0.0.1:{port}/log", timeout=5) as answer:
        return json.load(answer)


if __name__ == "__main__":
    if sys.argv[1:] == ["--fork"]:
        fork_servers()
    else:
        main(int(sys.argv[1]), sys.argv[2])
