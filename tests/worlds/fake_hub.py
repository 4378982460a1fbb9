"""A hub of datasets on loopback: it answers huggingface_hub while it uploads a folder, and keeps the files."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_test"


class FakeHub(ThreadingHTTPServer):
    """Repositories that were created, with their settings, and the files that a commit named, by path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.repositories: dict[str, dict[str, Any]] = {}
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}  # by sha256


class _Answer(BaseHTTPRequestHandler):
    server: FakeHub

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/upload/"):
            self.server.large[self.path.rpartition("/")[2]] = body
            return self._reply({})
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._reply({"error": "Invalid user token."}, 401)
        found = self._answer(self.path.partition("?")[0], body)
        return self._reply(found if found is not None else {"error": "Not found"}, 200 if found is not None else 404)

    do_GET = do_POST = do_PUT = do_HEAD = _handle

    def _answer(self, path: str, body: bytes) -> Any:
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
            self.server.repositories.setdefault(name, asked)
            return {"url": f"{self.server.address}/datasets/{name}"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [{"path": name, "uploadMode": "lfs" if name.endswith(".tar") else "regular",
                               "shouldIgnore": False, "oid": None} for name in names]}  # fmt: skip
        if path.endswith("/info/lfs/objects/batch"):
            objects = json.loads(body)["objects"]
            at = [{"upload": {"href": f"{self.server.address}/upload/{each['oid']}"}} for each in objects]
            return {
                "transfer": "basic",
                "objects": [each | {"actions": a} for each, a in zip(objects, at, strict=True)],
            }
        if "/commit/" in path:
            return self._commit([json.loads(line) for line in body.splitlines()], path)
        return {"sha": "0" * 40} if "/revision/" in path else None

    def _commit(self, lines: list[dict[str, Any]], path: str) -> dict[str, Any]:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.server.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                data = self.server.large[value["oid"]]
                assert hashlib.sha256(data).hexdigest() == value["oid"]
                self.server.files[value["path"]] = data
        repository = path.removeprefix("/api/datasets/").partition("/commit/")[0]
        return {"commitUrl": f"{self.server.address}/datasets/{repository}/commit/{'0' * 40}", "commitOid": "0" * 40}

    def _reply(self, content: Any, status: int = 200) -> None:
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve a hub until the end of the block."""
    with FakeHub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        yield hub
        hub.shutdown()
        thread.join()
