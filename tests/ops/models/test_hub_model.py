"""Models of the hub, here a server on loopback: what a download is, and that one which was killed goes on."""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path

import pytest

from pairmill.catalog.terms.error import NotApproved
from pairmill.flows.command import pairmill_run
from pairmill.flows.command.terminal import Screen
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.models.hub_model import MissingModel

COMMIT = "c" * 40
HALF = 12_000_000  # more than a chunk of the hub's client, which writes 10 MB at once
FILES = {"config.json": b"{}", "model.safetensors": bytes(2 * HALF), "pytorch_model.bin": b"the same in another form"}
DOWNLOAD = """
from pairmill.ops.models.hub_model import missing_model
from pairmill.ops.models.model_digest import resolve

model = missing_model("hf:toys/train")
print(model, flush=True)
model.download_weights()
folder = resolve("hf:toys/train")
print(sorted(file.name for file in folder.iterdir()), missing_model("hf:toys/train"))
"""


def record(name: str) -> dict[str, object]:
    """Return the hub's record of a file: weights are stored by SHA-256, small files by git's hash."""
    content = FILES[name]
    blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
    lfs = {"oid": (oid := hashlib.sha256(content).hexdigest()), "sha256": oid, "size": len(content), "pointerSize": 9}
    large = {"lfs": lfs} if name == "model.safetensors" else {}
    return {"type": "file", "rfilename": name, "path": name, "oid": blob, "blobId": blob, "size": len(content), **large}


class Hub(BaseHTTPRequestHandler):
    """A hub of one model, which sends half of its weights to whoever asks first and then says nothing more."""

    sent: list[tuple[str, str]]  # (file, range) of the downloads
    over: threading.Event

    def do_HEAD(self) -> None:
        self._answer(is_head=True)

    def do_GET(self) -> None:
        self._answer(is_head=False)

    def _answer(self, is_head: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/"):
            records = [record(name) for name in FILES]
            info = {"id": "toys/train", "sha": COMMIT, "cardData": {"license": "mit"}, "siblings": records}
            return self._send(200, json.dumps(records if "/tree/" in path else info).encode(), {})
        name = path.rpartition("/")[2]
        content, part = FILES[name], self.headers.get("Range") or ""
        known = record(name)
        etag = str(known["lfs"]["oid"] if "lfs" in known else known["blobId"])  # pyright: ignore[reportIndexIssue]
        headers = {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
        if is_head:
            return self._send(200, b"", headers | {"Content-Length": str(len(content))})
        self.sent.append((name, part))
        if name == "model.safetensors" and len([each for each, _ in self.sent if each == name]) == 1:
            self._send(200, content[:HALF], headers | {"Content-Length": str(len(content))})
            self.over.wait(60)
            return None
        start = int(part.removeprefix("bytes=").partition("-")[0] or 0)
        within = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if part else {}
        return self._send(206 if part else 200, content[start:], headers | within)

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def hub() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the address of a hub, and the downloads that it was asked for."""
    Hub.sent, Hub.over = [], threading.Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", Hub.sent
        Hub.over.set()
        running.shutdown()


def test_a_download_tells_size_licence_and_folder_and_goes_on_after_a_kill(tmp_path: Path, hub):
    url, sent = hub
    places = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "HF_HUB_OFFLINE": "0"}
    given = {"env": os.environ | places, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    blobs = tmp_path / "hub/models--toys--train/blobs"
    with subprocess.Popen([sys.executable, "-c", DOWNLOAD], **given) as killed:
        while not any(part.stat().st_size >= 10_000_000 for part in blobs.glob("*.part")):
            assert killed.poll() is None, killed.communicate()
            time.sleep(0.05)
        killed.kill()
        told = killed.communicate()[0]
    assert told == f"hf:toys/train: 0.024 GB, licence mit, to {blobs.parent}\n"
    (done,) = (part.stat().st_size for part in blobs.glob("*.part"))
    after = subprocess.run([sys.executable, "-c", DOWNLOAD], **given, timeout=120)
    assert after.stdout.splitlines()[1:] == ["['config.json', 'model.safetensors'] None"], after.stderr
    assert sent == [("model.safetensors", ""), ("model.safetensors", f"bytes={done}-"), ("config.json", "")]


def test_a_terminal_is_asked_once_and_a_no_ends_the_run_before_any_work(monkeypatch: pytest.MonkeyPatch):
    model = MissingModel("hf:toys/train", "toys/train", COMMIT, "mit", Path("cache"), (("weights", "", 4_500_000_000),))
    monkeypatch.setattr("pairmill.flows.machine.recipe_models.missing_model", lambda spec: model)
    recipe, out = load_recipe("captions", {}, "demo"), StringIO()

    def told(answer: str, is_sure: bool = False, is_terminal: bool = True) -> str:
        typed = StringIO(answer)
        monkeypatch.setattr(typed, "isatty", lambda: is_terminal)
        monkeypatch.setattr("sys.stdin", typed)
        out.truncate(out.seek(0))
        pairmill_run.ask_downloads(
            recipe, is_sure, Screen(file=out, force_terminal=is_terminal, width=200, highlight=False)
        )
        return out.getvalue()

    question = "Enter downloads, n ends: "
    assert "download  hf:toys/train: 4.5 GB, licence mit, to cache\n" in told("\n") and question in told("y\n")
    for quiet in (told("", is_sure=True), told("", is_terminal=False)):
        assert "download  hf:toys/train: 4.5 GB" in quiet and question not in quiet
    for no in ("n\n", ""):
        with pytest.raises(NotApproved, match="no model was downloaded; name others"):
            told(no)
