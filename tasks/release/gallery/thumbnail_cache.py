"""Cache small pictures by sha256 in a folder beside the lake, bounded in size: the least recently used go."""

import io
import os
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import cache_folder, trim
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import payload_paths
from pairmill.catalog.terms.whole_file import whole_file
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.tasks.run.items.payloads import payloads

SIDES = {"small": 256, "large": 1280}  # pixels of the longer side
MOST_BYTES = 2_000_000_000  # 150,000 small ones of 13 KB
SWEEP_EVERY = 2_000  # written files between two looks at the folder's size


class ThumbnailCache:
    """Make, store and find the files of a lake's thumbnails, by sha256 and ``kind``: size and format, as 'small.jpg'.

    A picture never changes under its sha256, so a file that exists is always right. Threads may share it; one at a time
    reads the lake.
    """

    def __init__(self, lake: Lake, most_bytes: int = MOST_BYTES) -> None:
        self._lake = lake
        self._folder = cache_folder(lake, "browse") / "thumbnails"
        self._most_bytes = most_bytes
        self._written = 0
        self._lock = threading.Lock()

    def find(self, sha256: str, kind: str) -> Path | None:
        """Return the file of a cached thumbnail, None if there is none; its age counts from now."""
        path = self._path(sha256, kind)
        with suppress(OSError):
            os.utime(path)
            return path
        return None

    def read(self, sha256: str, kind: str) -> bytes | None:
        """Return the bytes of a cached thumbnail, None if there is none."""
        with suppress(OSError):  # another process may remove it meanwhile
            return path.read_bytes() if (path := self.find(sha256, kind)) else None
        return None

    def store(self, sha256: str, kind: str, data: bytes) -> Path:
        """Write one thumbnail; the file appears whole or not at all. Raises OSError."""
        path = self._path(sha256, kind)
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as half:
            half.write_bytes(data)
        self._written += 1
        if self._written % SWEEP_EVERY == 0:
            self.sweep()
        return path

    def make(self, wanted: Mapping[str, str], size: str) -> dict[str, Path | Fault]:
        """Return the JPEG of each picture (sha256 -> shard) in one of SIDES, or a Fault for lost or undecodable bytes.

        Missing ones are made shard by shard, so that a page of pictures reads each row group once. Raises SourceError
        when a source cannot be reached.
        """
        kind = f"{size}.jpg"
        with self._lock:
            found: dict[str, Path | Fault] = {sha: path for sha in wanted if (path := self.find(sha, kind))}
            missing: dict[str, list[str]] = defaultdict(list)
            for sha256, shard in wanted.items():
                if sha256 not in found:
                    missing[shard].append(sha256)
            paths = payload_paths(self._lake, "payloads", missing)
            for shard, shas in missing.items():
                for names, datas in payloads(WorkItem(shard, tuple(shas), paths.get(shard, ())), chunk=16):
                    for name, data in zip(names, datas, strict=True):
                        made = data if isinstance(data, Fault) else small_jpeg(data, SIDES[size])
                        found[name] = made if isinstance(made, Fault) else self.store(name, kind, made)
                    if found.keys() >= set(shas):
                        break
            return found

    def sweep(self) -> int:
        """Remove the least recently used files until the folder is below its limit; return how many."""
        return trim(self._folder.glob("*/*"), self._most_bytes)

    def remove(self, sha256: str) -> None:
        """Remove every thumbnail of one picture."""
        for path in (self._folder / sha256[:2]).glob(f"{sha256}-*"):
            path.unlink(missing_ok=True)

    def _path(self, sha256: str, kind: str) -> Path:
        return self._folder / sha256[:2] / f"{sha256}-{kind}"


def small_jpeg(data: bytes, side: int) -> bytes | Fault:
    """Return a JPEG whose longer side is at most ``side``, or a Fault if ``data`` does not decode."""
    header = inspect(data)
    if isinstance(header, Fault):
        return header
    pixels = Decode(side=min(side, header.width, header.height), mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return pixels
    image, out = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((side, side))
    image.save(out, "JPEG", quality=80, optimize=True)
    return out.getvalue()
