"""Make small WebPs of images, to embed in a page as data: URLs. Reports of one lake show mostly the same images."""

import base64
import io
from collections import defaultdict
from contextlib import suppress

from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import payload_paths
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.release.gallery.thumbnail_cache import ThumbnailCache
from pairmill.tasks.run.items.payloads import payloads

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

    What an earlier page showed is read from the cache. Of another image, the shard is read up to the last wanted one.
    """
    cached, kind = ThumbnailCache(lake), f"{side}.webp"
    found = {sha: _picture(made) for sha, _ in wanted if (made := cached.read(sha, kind))}
    keys: dict[str, list[str]] = defaultdict(list)
    for sha256, shard in wanted:
        if sha256 not in found:
            keys[shard].append(sha256)
    paths = payload_paths(lake, "payloads", keys)
    failed = 0
    for shard, shas in keys.items():
        try:
            if failed < TRIES:
                found |= _of_shard(WorkItem(shard, tuple(shas), paths.get(shard, ())), side, cached)
        except SourceError:
            failed += 1
    return {sha256: found.get(sha256, NONE | {"lost": "out of reach"}) for sha256, _ in wanted}


def _of_shard(item: WorkItem, side: int, cached: ThumbnailCache) -> dict[str, dict[str, str]]:
    """Return the pictures of one shard's images, and cache them."""
    found: dict[str, dict[str, str]] = {}
    for names, datas in payloads(item, chunk=16):
        found |= {name: _shown(name, data, side, cached) for name, data in zip(names, datas, strict=True)}
        if found.keys() >= set(item.keys):
            break
    return found


def _shown(sha256: str, data: bytes | Fault, side: int, cached: ThumbnailCache) -> dict[str, str]:
    """Return the thumbnail of one image, and cache it. A full disk prevents only the caching."""
    if isinstance(data, Fault):
        return NONE | {"lost": data.reason}
    made = small_webp(data, side)
    if made:
        with suppress(OSError):
            cached.store(sha256, f"{side}.webp", made)
    return _picture(made)


def _picture(webp: bytes) -> dict[str, str]:
    return NONE | {"picture": _data_url(webp)}


def thumbnail(data: bytes, side: int = SIDE) -> str:
    """Encode an image file as a data: URL of a WebP, as `small_webp` does; '' if it does not decode."""
    return _data_url(small_webp(data, side))


def _data_url(webp: bytes) -> str:
    return "data:image/webp;base64," + base64.b64encode(webp).decode() if webp else ""


def small_webp(data: bytes, side: int) -> bytes:
    """Encode an image file as a WebP whose longer side is at most ``side`` pixels; b'' if it does not decode.

    Photographs take some 8 KB. What takes over MOST_BYTES is encoded again, coarser, so that 700 of them stay below
    10 MB.
    """
    header = inspect(data)
    if isinstance(header, Fault):
        return b""
    short, long = sorted((header.width, header.height))
    pixels = Decode(side=max(1, min(short, round(side * short / long))), mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return b""
    image = Image.fromarray(pixels)
    made = b""
    for share, quality in ATTEMPTS:
        out = io.BytesIO()
        image.thumbnail((side * share, side * share))
        image.save(out, "WEBP", quality=quality, method=2)
        made = out.getvalue()
        if len(made) <= MOST_BYTES:
            break
    return made
