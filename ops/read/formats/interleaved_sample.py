"""Read a WebDataset sample with parallel ``texts`` and ``images`` lists, as MINT-1T releases PDFs.

A picture is a member of the sample or of the archive, a page of the sample's multi-page TIFF (the n-th name of
``images`` is its n-th page, as ``image_metadata`` counts), or an address on the web. Shape after the dataset cards of
MINT-1T (arXiv 2406.11271).
"""

from __future__ import annotations

import io
import posixpath
import warnings
from typing import Any

from PIL import Image, ImageSequence

from pairmill.ops.fault import Fault
from pairmill.ops.image.header import HOSTILE
from pairmill.ops.read.document import Document, Picture, Text, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.one_document import DOCUMENT_BYTES
from pairmill.ops.read.places.tree import Tree

TIFF = ("tiff", "tif")
MAX_PAGE_PIXELS = 100_000_000
Sample = dict[str, str]


def document(packed: Tree, uri: str, sample: Sample, about: dict[str, Any]) -> Document | Fault:
    """Make the document of sample ``uri``; ``about`` is its JSON with the lists ``texts`` and ``images``.

    A Fault instead when the lists are not parallel or hold nothing.
    """
    texts, images = about["texts"], about["images"]
    if len(texts) != len(images):
        detail = f"the lists differ in length: {len(images)} images, {len(texts)} texts"
        return Fault(uri, "bad_record", detail)
    names = [image for image in images if image is not None]
    pages = _pages(packed, sample, len(names))
    said = about.get("image_metadata")
    details = said if isinstance(said, list) and len(said) == len(names) else [{}] * len(names)
    items: list[Picture | Text] = []
    position = 0
    for text, image in zip(texts, images, strict=True):
        if image is not None:
            page = pages[position] if position < len(pages) else None
            items.append(_picture(packed, uri, sample, position, str(image), page, details[position]))
            position += 1
        if clean(text):
            items.append(Text(clean(text)))
    if not items:
        return Fault(uri, "bad_record", "the sample holds neither a text nor an image")
    kept = {name: value for name, value in about.items() if name not in ("texts", "images")}
    return Document(uri, clean(about.get("title")), as_storable(kept), tuple(items))


def _picture(
    packed: Tree,
    uri: str,
    sample: Sample,
    position: int,
    name: str,
    page: bytes | Fault | None,
    said: Any,
) -> Picture:
    alt = clean(said.get("alt_text")) if isinstance(said, dict) else ""
    if isinstance(page, bytes):
        return Picture(position, f"{uri}.{clean(name) or position}", alt, page)
    path = _member(packed, sample, name)
    if path:
        return picture_of_file(packed, path, packed.read(path), position, packed.uri(path), alt)
    link = resolve(packed, posixpath.basename(uri), name)
    fault = page or link.fault
    if fault is None and not link.data:
        fault = Fault(link.url, "missing", "neither a member, a page of the TIFF nor an address")
    return Picture(position, link.url, alt, link.data if fault is None else b"", fault)


def _member(packed: Tree, sample: Sample, name: str) -> str:
    if packed.exists(name):
        return name
    return next((path for extension, path in sample.items() if posixpath.splitext(extension)[0] == name), "")


def _pages(packed: Tree, sample: Sample, n: int) -> list[bytes | Fault]:
    """Split the sample's TIFF into its first ``n`` pages, each a lossless PNG; a TIFF of one page stays as it is."""
    path = next((sample[extension] for extension in TIFF if extension in sample), "")
    data = packed.read(path) if path else b""
    if isinstance(data, Fault) or not data:
        return [data] * n if isinstance(data, Fault) else []
    found: list[bytes | Fault] = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(io.BytesIO(data), formats=("TIFF",)) as image:
                if n == 1 and getattr(image, "n_frames", 1) == 1:
                    return [data]
                for page in ImageSequence.Iterator(image):
                    if len(found) == n:
                        break
                    if sum(len(each) for each in found if isinstance(each, bytes)) > DOCUMENT_BYTES:
                        raise MemoryError(f"its pages hold over {DOCUMENT_BYTES} bytes")
                    found.append(_png(page, packed.uri(path)))
    except HOSTILE as error:
        found += [Fault(packed.uri(path), "undecodable", f"the TIFF cannot be read: {error}")] * (n - len(found))
    return found


def _png(page: Image.Image, uri: str) -> bytes | Fault:
    if page.width * page.height > MAX_PAGE_PIXELS:
        return Fault(uri, "bomb", f"a page of {page.width} x {page.height} pixels")
    out = io.BytesIO()
    shown = page if page.mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16") else page.convert("RGB")
    shown.save(out, "PNG", compress_level=1)
    return out.getvalue()
