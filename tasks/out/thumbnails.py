"""Make small WebPs of images, to embed in a page as data: URLs."""

import base64
import io
from collections import defaultdict

from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import payload_paths
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.payloads import payloads

SIDE = 256  # pixels of the longer side
ATTEMPTS = ((1.0, 70), (1.0, 35), (0.5, 35))  # (share of the side, quality)
MOST_BYTES = 9_000
TRIES = 3
NONE = {"picture": "", "lost": ""}


def thumbnails(lake: Lake, wanted: list[tuple[str, str]], side: int = SIDE) -> dict[str, dict[str, str]]:
    """Return, by sha256, a ``picture`` (data: URL, '' without one) for each of ``wanted`` (sha256, shard).

    The longer side has at most ``side`` pixels. ``lost`` is the quarantine reason of bytes that are damaged or no
    longer at their source, 'out of reach' if the source cannot be read, else ''. After TRIES shards out of reach no
    further shard is tried.

    A shard is read up to its last wanted image.
    """
    keys: dict[str, list[str]] = defaultdict(list)
    for sha256, shard in wanted:
        keys[shard].append(sha256)
    paths = payload_paths(lake, "payloads", keys)
    found: dict[str, dict[str, str]] = {}
    failed = 0
    for shard, shas in keys.items():
        try:
            if failed < TRIES:
                found |= _of_shard(WorkItem(shard, tuple(shas), paths.get(shard, ())), side)
        except SourceError:
            failed += 1
    return {sha256: found.get(sha256, NONE | {"lost": "out of reach"}) for sha256, _ in wanted}


def _of_shard(item: WorkItem, side: int) -> dict[str, dict[str, str]]:
    """Return the pictures of one shard's images."""
    found: dict[str, dict[str, str]] = {}
    for names, datas in payloads(item, chunk=16):
        found |= {name: _shown(data, side) for name, data in zip(names, datas, strict=True)}
        if found.keys() >= set(item.keys):
            break
    return found


def _shown(data: bytes | Fault, side: int) -> dict[str, str]:
    if isinstance(data, Fault):
        return NONE | {"lost": data.reason}
    return NONE | {"picture": thumbnail(data, side)}


def thumbnail(data: bytes, side: int = SIDE) -> str:
    """Return a WebP data: URL with the longer side at most ``side`` pixels; '' if ``data`` does not decode.

    Photographs take some 8 KB. What takes over MOST_BYTES is encoded again, coarser, so that 700 of them stay below
    10 MB.
    """
    header = inspect(data)
    if isinstance(header, Fault):
        return ""
    short, long = sorted((header.width, header.height))
    pixels = Decode(side=max(1, min(short, round(side * short / long))), mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return ""
    image = Image.fromarray(pixels)
    made = b""
    for share, quality in ATTEMPTS:
        out = io.BytesIO()
        image.thumbnail((side * share, side * share))
        image.save(out, "WEBP", quality=quality, method=2)
        made = out.getvalue()
        if len(made) <= MOST_BYTES:
            break
    return "data:image/webp;base64," + base64.b64encode(made).decode()
