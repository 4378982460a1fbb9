"""Read folders of HTML pages whose images lie beside them or are embedded. One page is one unit and one document."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit, picture_of_file
from pairmill.ops.read.example import PAGE, Example, picture
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.links import Link, resolve
from pairmill.ops.read.page.reading_order import PictureReference, references
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree

SUFFIXES = frozenset(("html", "htm", "xhtml"))
# Pages to read in parallel when the images that pages show are searched for; this hides the latency of S3.
AT_ONCE = 128


class HtmlFolder:
    """Read HTML pages; an image file that a page shows belongs to the page and is no document of its own.

    A page is read again if its own file or the file of an image that it shows changes.
    """

    name = "html_folder"
    turn = 90
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = ".html, .htm or .xhtml pages"
    examples = (
        Example(
            "HTML pages with pictures beside them or embedded: `.html .htm .xhtml`; their main content",
            "pages",
            lambda: {"pages/p.html": PAGE, "pages/a.jpg": picture()},
            images=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim pages and the image files they show; if there are image files, parse every page for this (0.3 ms)."""
        has_pictures = files.has(PICTURE_SUFFIXES)
        for some in _by_bytes(files.of(SUFFIXES)):
            shown = _shown_by(tree, some, files) if has_pictures else [()] * len(some)
            for entry, pictures in zip(some, shown, strict=True):
                etags = [found.etag for path in pictures if (found := files.get(path))]
                files.take(entry.path, *pictures)
                etag = text_id(entry.etag, *etags) if pictures else entry.etag
                yield Unit(tree.uri(entry.path), entry.size, etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the document of one page, or a Fault if it cannot be read."""
        path = tree.path_of(unit.uri)
        data = tree.read(path)
        parsed = data if isinstance(data, Fault) else page.parse(unit.uri, data)
        del data
        yield parsed if isinstance(parsed, Fault) else _document(OneDocument(tree), path, parsed)


def _document(tree: OneDocument, path: str, parsed: page.Page) -> Document:
    """Build a page's document; read the image files that it shows."""
    base = page.base(parsed.root)
    items = reading_order.items(parsed.root)
    references = [item for item in items if isinstance(item, PictureReference)]
    linked = {each: [resolve(tree, path, source, base) for source in each.sources] for each in references}
    # Read the files that the page most likely shows in parallel; OneDocument caches them.
    tree.read_many(sorted({links[0].paths[0] for links in linked.values() if links and links[0].paths}))

    def read_picture(reference: PictureReference, position: int) -> Picture:
        nowhere = f"{tree.uri(path)}#picture-{position}"
        return _picture(tree, linked[reference], nowhere, position, reference.alt_text)

    about: dict[str, object] = {"charset": parsed.charset}
    if parsed.n_bad:
        about["undecodable_letters"] = parsed.n_bad
    return page.build_document(tree.uri(path), parsed, items, read_picture, about)


def _picture(tree: Tree, links: list[Link], nowhere: str, position: int, alt_text: str) -> Picture:
    """Build the image from the first link that has bytes; if none has, keep the address and fault of one link.

    The fault of a file that exists is preferred to that of a missing file.
    """
    refused: list[tuple[str, Fault]] = []
    for link in links:
        if link.data:
            return Picture(position, link.url, alt_text, link.data)
        if link.fault:
            refused.append((link.url, link.fault))
        for path in link.paths:
            data = tree.read(path)
            if not isinstance(data, Fault):
                return picture_of_file(tree, path, data, position, tree.uri(path), alt_text)
            refused.append((tree.uri(path), data))
    refused.append((nowhere, Fault(nowhere, "missing", "a picture element without an address")))
    url, fault = min(refused, key=lambda pair: pair[1].reason == "missing")  # the first of equals
    return Picture(position, url, alt_text, b"", fault)


def _by_bytes(pages: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Batch pages into lists of at most AT_ONCE pages and page.MOST_BYTES bytes, the size limit of a single page."""
    some: list[Entry] = []
    for entry in pages:
        if some and (len(some) == AT_ONCE or sum(each.size for each in some) + entry.size > page.MOST_BYTES):
            yield some
            some = []
        some.append(entry)
    if some:
        yield some


def _shown_by(tree: Tree, pages: list[Entry], files: Container[str]) -> list[Sequence[str]]:
    """List for each page the image files that it shows, sorted by name."""
    found = tree.read_many([entry.path for entry in pages], page.MOST_BYTES)
    return [sorted(_shown(tree, entry.path, data, files)) for entry, data in zip(pages, found, strict=True)]


def _shown(tree: Tree, path: str, data: bytes | Fault, files: Container[str]) -> set[str]:
    """Collect the source's files that a page shows: of each image, the one file that is used."""
    parsed = data if isinstance(data, Fault) else page.parse(path, data)
    if isinstance(parsed, Fault):
        return set()
    base = page.base(parsed.root)
    shown = (_chosen(tree, path, base, reference, files) for reference in references(parsed.root))
    return {choice for choice in shown if choice}


def _chosen(tree: Tree, path: str, base: str, reference: PictureReference, files: Container[str]) -> str:
    """Return the first of an image's candidate files that exists; '' if there is none or the bytes are embedded."""
    for source in reference.sources:
        link = resolve(tree, path, source, base)
        if link.data:
            return ""
        for candidate in link.paths:
            if candidate in files:
                return candidate
    return ""


FORMATS = (HtmlFolder(),)
