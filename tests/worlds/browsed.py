"""Open the browser's pages: by requests in this process, or served to a real browser."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from lxml import html
from starlette.testclient import TestClient

from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.browse.application import _bound, application
from pairmill.flows.browse.browsed_lake import BrowsedLake
from pairmill.flows.browse.picture_search import PictureSearch

TOKEN, PORT = "a-token", 8765
ORIGIN = f"http://127.0.0.1:{PORT}"


class Pages:
    """The pages of one lake, opened with the token."""

    def __init__(self, opened: BrowsedLake) -> None:
        self.opened = opened
        self.client = TestClient(application(opened, TOKEN, PORT), base_url=ORIGIN)
        self.client.get("/static/icon.svg", params={"token": TOKEN})

    def page(self, address: str, status: int = 200) -> html.HtmlElement:
        """Return a page, which must have the status."""
        answer = self.client.get(address)
        assert answer.status_code == status, (answer.status_code, answer.text[:3000])
        return html.fromstring(answer.text)

    def gallery(self, address: str) -> html.HtmlElement:
        """Return a gallery's page, once its gallery is built."""
        while "Reading the lake" in text(found := self.page(address)):
            time.sleep(0.05)  # asking on would take the CPU from the thread that reads
        return found


def text(element: html.HtmlElement) -> str:
    """Return an element's text on one line."""
    return " ".join(element.text_content().split())


def ids(page: html.HtmlElement) -> list[str]:
    """Return the ids of the pictures of a gallery's page."""
    return re.findall(r"/item/([0-9a-f]{32})", " ".join(page.xpath("//a[@class='item']/@href")))


@contextmanager
def browsed(lake: Path) -> Iterator[Pages]:
    """Open a lake's pages in this process."""
    opened = BrowsedLake(str(lake))
    try:
        yield Pages(opened)
    finally:
        opened.close()


@contextmanager
def served(lake: Path) -> Iterator[str]:
    """Serve a lake on a free port; yield the address that holds the token."""
    opened = BrowsedLake(str(lake))
    try:
        with serving(opened) as address:
            yield address
    finally:
        opened.close()


@contextmanager
def serving(opened: BrowsedLake, search: Callable[[BrowsedLake], PictureSearch] = PictureSearch) -> Iterator[str]:
    """Serve an open lake with its search on a free port; yield the address that holds the token."""
    with _bound(0) as listening:
        port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(opened, TOKEN, port, search), log_level="warning", lifespan="off", ws="none"
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/?token={TOKEN}"
        finally:
            server.should_exit = True
            thread.join()


def rows(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    """Query a lake."""
    with create_or_open(lake, read_only=True) as opened:
        return opened.query(sql)
