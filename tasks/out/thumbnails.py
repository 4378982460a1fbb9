"""Make small JPEGs of pictures, to embed in a page as data: URLs."""

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

SIDE = 160  # pixels of the longer side: 24 of them are some 150 KB


def thumbnails(lake: Lake, wanted: list[tuple[str, str]]) -> dict[str, str]:
    """Make data: URLs by sha256 for ``wanted`` (sha256, shard); none for bytes that are no longer at their source.

    A shard is read up to its last wanted picture. Raises SourceError when a source cannot be reached.
    """
    keys: dict[str, list[str]] = defaultdict(list)
    for sha256, shard in wanted:
        keys[shard].append(sha256)
    paths = payload_paths(lake, "payloads", keys)
    found: dict[str, str] = {}
    for shard, shas in keys.items():
        for names, datas in payloads(WorkItem(shard, tuple(shas), paths.get(shard, ())), chunk=16):
            shown = ((name, data) for name, data in zip(names, datas, strict=True) if not isinstance(data, Fault))
            found |= {name: thumbnail(data) for name, data in shown}
            if found.keys() >= set(shas):
                break
    return found


def thumbnail(data: bytes) -> str:
    """Make a JPEG data: URL with the longer side at most SIDE pixels; '' when ``data`` does not decode."""
    pixels = Decode(side=SIDE, mode="scaled").preview(data)
    if isinstance(pixels, Fault):
        return ""
    image, out = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((SIDE, SIDE))
    image.save(out, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
