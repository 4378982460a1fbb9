"""Make small pictures: JPEGs for the browser, cached in a folder beside the lake, and WebPs to embed in a page."""

import base64
import io
import os
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import cache_folder, trim
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items.payloads import payloads

SIDES = {"small": 256, "large": 1280}  # pixels of the longer side of a JPEG
CACHE_BYTES = 2_000_000_000  # 150,000 small ones of 13 KB
SWEEP_EVERY = 2_000  # written files between two looks at the folder's size
SIDE = 256  # pixels of the longer side of a WebP
ATTEMPTS = ((1.0, 70), (1.0, 35), (0.5, 35))  # (share of the side, quality)
MOST_BYTES = 9_000
TRIES = 3
NONE = {"picture": "", "lost": ""}


class ThumbnailCache:
    """Cache of a lake's thumbnails: files by the picture's sha256 and ``kind``, its size and format, as 'small.jpg'.

    A picture never changes under its sha256, so a cached file is always valid. Threads may share the cache; one at a
    time reads the lake. Beyond ``most_bytes``, the least recently used files are removed.
    """

    def __init__(self, lake: Lake, most_bytes: int = CACHE_BYTES) -> None:
        self._lake = lake
        self._folder = cache_folder(lake, "browse") / "thumbnails"
        self._most_bytes = most_bytes
        self._written = 0
        self._lock = threading.Lock()

    def find(self, sha256: str, kind: str) -> Path | None:
        """Return the path of a cached thumbnail, None if it is missing; marks the file as used now."""
        path = self._path(sha256, kind)
        with suppress(OSError):
            os.utime(path)
            return path
        return None

    def read(self, sha256: str, kind: str) -> bytes | None:
        """Return the bytes of a cached thumbnail, None if it is missing."""
        with suppress(OSError):  # another process may remove it meanwhile
            return path.read_bytes() if (path := self.find(sha256, kind)) else None
        return None

    def store(self, sha256: str, kind: str, data: bytes) -> Path:
        """Write one thumbnail to the cache, whole or not at all; return its path. Raises OSError."""
        path = self._path(sha256, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as half:
            half.write_bytes(data)
        self._written += 1
        if self._written % SWEEP_EVERY == 0:
            self.sweep()
        return path

    def make(self, wanted: Mapping[str, str], size: str) -> dict[str, Path | Fault]:
        """Return by sha256 the path of each picture's JPEG of ``size``, one of SIDES; make missing files.

        ``wanted``: sha256 -> shard. A picture whose bytes are lost or do not decode gets a Fault.

        Raises SourceError when a source cannot be reached.
        """
        kind = f"{size}.jpg"
        with self._lock:
            found: dict[str, Path | Fault] = {sha: path for sha in wanted if (path := self.find(sha, kind))}
            for pictures in _by_shard(self._lake, {sha: wanted[sha] for sha in wanted if sha not in found}):
                for sha256, data in pictures:
                    image = data if isinstance(data, Fault) else _preview(data, SIDES[size])
                    if isinstance(image, Fault):
                        found[sha256] = image
                    else:
                        jpeg = _encode(image, "JPEG", quality=80, optimize=True)
                        found[sha256] = self.store(sha256, kind, jpeg)
            return found

    def sweep(self) -> int:
        """Remove the least recently used files until the cache is within its limit; return their number."""
        return trim(self._folder.glob("*/*"), self._most_bytes)

    def _path(self, sha256: str, kind: str) -> Path:
        return self._folder / sha256[:2] / f"{sha256}-{kind}"


def thumbnails(lake: Lake, wanted: list[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return by sha256 ``picture``, a data: URL of a small WebP, and ``lost`` for each of ``wanted`` (sha256, shard).

    A picture that cannot be shown has ``picture`` '', and as ``lost`` the quarantine reason of damaged or missing
    bytes, or 'out of reach' if its source cannot be read; ``lost`` is '' otherwise. After TRIES shards out of reach no
    further shard is tried. Thumbnails are cached: reports of one lake show mostly the same images.
    """
    cached, kind, failed = ThumbnailCache(lake), f"{SIDE}.webp", 0
    found = {sha: NONE | {"picture": _data_url(made)} for sha, _ in wanted if (made := cached.read(sha, kind))}
    for pictures in _by_shard(lake, {sha: shard for sha, shard in wanted if sha not in found}):
        try:
            for sha256, data in pictures if failed < TRIES else ():
                if isinstance(data, Fault):
                    found[sha256] = NONE | {"lost": data.reason}
                    continue
                if made := _webp(data):
                    with suppress(OSError):  # a full disk prevents only the caching
                        cached.store(sha256, kind, made)
                found[sha256] = NONE | {"picture": _data_url(made)}
        except SourceError:
            failed += 1
    return {sha256: found.get(sha256, NONE | {"lost": "out of reach"}) for sha256, _ in wanted}


def thumbnail(data: bytes) -> str:
    """Encode an image file as a data: URL of a small WebP; '' if it does not decode."""
    return _data_url(_webp(data))


def _by_shard(lake: Lake, wanted: Mapping[str, str]) -> Iterator[Iterator[tuple[str, bytes | Fault]]]:
    """Yield each shard's bytes of ``wanted`` (sha256 -> shard), reading each row group once, up to the last wanted."""
    keys: dict[str, list[str]] = defaultdict(list)
    for sha256, shard in wanted.items():
        keys[shard].append(sha256)
    paths = paths_by_shard(lake, "payloads", keys)
    for shard, shas in keys.items():
        chunks = payloads(WorkItem(shard, tuple(shas), paths.get(shard, ())), chunk=16)
        yield (each for names, datas in chunks for each in zip(names, datas, strict=True))


def _preview(data: bytes, side: int) -> Image.Image | Fault:
    """Decode an image file, its longer side at most ``side`` pixels; a Fault if it does not decode."""
    header = inspect(data)
    if isinstance(header, Fault):
        return header
    short, long = sorted((header.width, header.height))
    pixels = Decode(side=max(1, min(short, round(side * short / long))), mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return pixels
    image = Image.fromarray(pixels)
    image.thumbnail((side, side))
    return image


def _webp(data: bytes) -> bytes:
    """Encode as WebP of at most SIDE pixels, some 8 KB; coarser above MOST_BYTES; b'' if it does not decode."""
    image, made = _preview(data, SIDE), b""
    if isinstance(image, Fault):
        return made
    for share, quality in ATTEMPTS:
        image.thumbnail((SIDE * share, SIDE * share))
        made = _encode(image, "WEBP", quality=quality, method=2)
        if len(made) <= MOST_BYTES:
            break
    return made


def _encode(image: Image.Image, format: str, **settings: int) -> bytes:
    """Return the bytes of an image's file."""
    out = io.BytesIO()
    image.save(out, format, **settings)
    return out.getvalue()


def _data_url(webp: bytes) -> str:
    return "data:image/webp;base64," + base64.b64encode(webp).decode() if webp else ""
