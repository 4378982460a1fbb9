"""Drive a headless Chromium by its DevTools protocol: open pages, run scripts, press keys, take screenshots.

``PAIRMILL_CHROMIUM`` names the browser; otherwise one of NAMES on the path is taken.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from websockets.sync.client import connect

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0",
           "--no-first-run", "--disable-background-networking", "--hide-scrollbars", "about:blank")  # fmt: skip
PATIENCE = 180.0
KEYS = {
    "ArrowRight": 39,
    "ArrowDown": 40,
    "ArrowLeft": 37,
    "Enter": 13,
    "Escape": 27,
    "Tab": 9,
    "1": 49,
    "2": 50,
    "3": 51,
    "u": 85,
}


class Tab:
    """One tab. ``events`` are the protocol's messages that no call waited for."""

    def __init__(self, socket: Any) -> None:
        self._socket, self._numbers = socket, count(1)
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self._socket.recv(PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, (method, message["error"])
                return message["result"]
            self.events.append(message)

    def open(self, address: str) -> None:
        """Open an address and wait until the page and its pictures are loaded."""
        self.call("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """Return the value of a script, after its promise if it returns one."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> Any:
        """Wait until a script's value is true, and return it."""
        begun = time.monotonic()
        while time.monotonic() - begun < PATIENCE:
            try:
                if found := self.run(condition):
                    return found
            except AssertionError:  # the page is being replaced
                pass
            time.sleep(0.05)
        shown = self.run("location.href + ' ' + document.body.innerText")[:500]
        lost = [e["params"].get("errorText") for e in self.events if e["method"] == "Network.loadingFailed"]
        raise TimeoutError(f"never true: {condition}; on {shown}; not loaded: {lost}; {self.complaints()}")

    def press(self, key: str) -> None:
        """Press and release a key of KEYS."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            more = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=KEYS[key], **more)

    def click(self, selector: str) -> None:
        """Click in the middle of an element with the mouse."""
        found = f"const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}});"
        middle = "const b = e.getBoundingClientRect(); return [b.x + b.width / 2, b.y + b.height / 2];"
        x, y = self.run(f"(() => {{ {found} {middle} }})()")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, line: list[tuple[float, float]]) -> None:
        """Press the mouse at the first place, move through the others in small steps, release at the last."""
        mouse = {"button": "left", "clickCount": 1}
        self.call("Input.dispatchMouseEvent", type="mousePressed", x=line[0][0], y=line[0][1], **mouse)
        for (x1, y1), (x2, y2) in pairwise(line):
            for part in (0.25, 0.5, 0.75, 1.0):
                at = {"x": x1 + part * (x2 - x1), "y": y1 + part * (y2 - y1)}
                self.call("Input.dispatchMouseEvent", type="mouseMoved", buttons=1, **at)
        self.call("Input.dispatchMouseEvent", type="mouseReleased", x=line[-1][0], y=line[-1][1], **mouse)

    def look(self, width: int, height: int = 900, dark: bool = False, scripts: bool = True) -> None:
        """Set the window's size, the colour scheme and whether scripts run."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setScriptExecutionDisabled", value=not scripts)

    def screenshot(self, path: Path) -> None:
        """Write a PNG of the window."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def requested(self) -> list[str]:
        """Return the addresses of all requests so far."""
        return [e["params"]["request"]["url"] for e in self.events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        """Return the errors that scripts or the content policy raised so far."""
        thrown = [str(e["params"]) for e in self.events if e["method"] == "Runtime.exceptionThrown"]
        entries = [e["params"]["entry"] for e in self.events if e["method"] == "Log.entryAdded"]
        return thrown + [entry["text"] for entry in entries if entry["level"] == "error"]


def browser() -> str:
    """Return the browser's path. Raise FileNotFoundError with the remedy if there is none."""
    named = os.environ.get("PAIRMILL_CHROMIUM")
    found = named or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        raise FileNotFoundError("these tests drive Chromium: install it, or name one by PAIRMILL_CHROMIUM")
    return found


@contextmanager
def tab() -> Iterator[Tab]:
    """Start a browser with a profile of its own, and yield its tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser(), f"--user-data-dir={profile}", *OPTIONS]
        # Debian's command is a script that starts the browser: a signal to it alone would leave the browser running.
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(command, start_new_session=True, stderr=quiet, stdout=quiet)
        try:
            with connect(_socket(Path(profile)), max_size=2**26) as socket:
                yield Tab(socket)
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)


def _socket(profile: Path) -> str:
    """Return the address of the first tab, once the browser has written its port."""
    written, begun = profile / "DevToolsActivePort", time.monotonic()
    while time.monotonic() - begun < PATIENCE:
        if written.exists() and (lines := written.read_text().splitlines()):
            with urlopen(f"http://127.0.0.1:{lines[0]}/json/list") as answer:
                pages = [each for each in json.load(answer) if each["type"] == "page"]
            if pages:
                return pages[0]["webSocketDebuggerUrl"]
        time.sleep(0.05)
    raise TimeoutError("the browser did not start")
