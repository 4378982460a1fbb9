"""Make small JPEGs of images, to embed in a page as data: URLs."""

import base64
import io
from collections import defaultdict

from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import payload_paths
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.tasks.run.payloads import payloads

SIDE = 160  # pixels of the longer side; 24 thumbnails take some 150 KB
NONE = {"picture": "", "lost": ""}


def thumbnails(lake: Lake, wanted: list[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Return, by sha256, a ``picture`` (data: URL, '' without one) for each of ``wanted`` (sha256, shard).

    ``lost`` is the quarantine reason of bytes that are damaged or no longer at their source, else ''.

    A shard is read up to its last wanted image. Raises SourceError when a source cannot be reached.
    """
    keys: dict[str, list[str]] = defaultdict(list)
    for sha256, shard in wanted:
        keys[shard].append(sha256)
    paths = payload_paths(lake, "payloads", keys)
    found: dict[str, dict[str, str]] = {}
    for shard, shas in keys.items():
        for names, datas in payloads(WorkItem(shard, tuple(shas), paths.get(shard, ())), chunk=16):
            found |= {name: _shown(data) for name, data in zip(names, datas, strict=True)}
            if found.keys() >= set(shas):
                break
    return found


def _shown(data: bytes | Fault) -> dict[str, str]:
    if isinstance(data, Fault):
        return NONE | {"lost": data.reason}
    return NONE | {"picture": thumbnail(data)}


def thumbnail(data: bytes) -> str:
    """Return a JPEG data: URL with the longer side at most SIDE pixels; '' if ``data`` does not decode."""
    pixels = Decode(side=SIDE, mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return ""
    image, out = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((SIDE, SIDE))
    image.save(out, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
