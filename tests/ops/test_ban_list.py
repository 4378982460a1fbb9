"""What was taken down does not come in again, by content, look, address, host or document."""

import io

import numpy as np
import pytest
from PIL import Image

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.ids import content_id
from pairmill.ops.ban_list import BanList, Banned, perceptual_hash
from pairmill.ops.fetch.fetcher import Fetcher, FetchResult
from pairmill.tasks.collect.fetch import FetchPictures


def encoded(image: Image.Image, kind: str) -> bytes:
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


@pytest.fixture
def drawn() -> Image.Image:
    blocks = np.random.default_rng(3).integers(0, 255, (5, 6, 3), np.uint8)
    return Image.fromarray(blocks).resize((120, 90), Image.Resampling.BICUBIC)


def test_a_copy_in_another_size_and_format_is_banned_by_its_look(drawn: Image.Image):
    original, copy = encoded(drawn, "png"), encoded(drawn.resize((300, 225)), "jpeg")
    found = perceptual_hash(original)
    assert found is not None and perceptual_hash(b"no picture") is None
    banned = BanList(hashes=(found,))
    fault = banned.of_picture(copy, content_id(copy))
    assert fault is not None and fault.reason == "banned"
    turned = encoded(drawn.rotate(90), "png")
    assert banned.of_picture(turned, content_id(turned)) is None
    assert BanList().of_picture(copy, content_id(copy)) is None


def test_addresses_below_one_hosts_and_documents_are_banned():
    banned = BanList(documents=frozenset({"d1"}), addresses=Banned(("bad.example", "https://good.example/private/")),
                     urls=frozenset({"https://good.example/1"}))  # fmt: skip
    assert banned.of_document("d1", "https://good.example/page") is not None
    assert banned.of_document("d2", "https://www.bad.example/page") is not None
    assert banned.of_document("d2", "https://good.example/page") is None
    assert banned.of_address("https://good.example/private/a.jpg") is not None
    assert banned.of_address("https://good.example/1") is not None
    assert banned.of_address("https://good.example/10") is None


def test_a_fetched_picture_that_is_banned_becomes_a_row_without_bytes(drawn: Image.Image):
    data = encoded(drawn, "png")
    url = "https://e.example/never-asked.png"
    job = FetchPictures(Fetcher(), 10**6, BanList(pictures=frozenset({content_id(data)}), urls=frozenset({url})))
    row = job._row(FetchResult("https://e.example/a.png", data=data))
    assert (row["reason"], row["sha256"]) == ("banned", None)
    fetches = {
        part.table: part.rows.to_pylist() for part in job(WorkItem("s", (url,), inputs={"sources": ("pages",)}))
    }["fetches"]
    assert [row["reason"] for row in fetches] == ["banned"]
