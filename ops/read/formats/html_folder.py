"""Read folders of HTML pages whose images lie beside them or are embedded. One page is one unit and one document."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, picture_of_file
from pairmill.ops.read.example import PAGE, Example, picture
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.links import Link, resolve
from pairmill.ops.read.page.picture_reference import PictureReference, references
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree

SUFFIXES = frozenset(("html", "htm", "xhtml"))
# Pages to read in parallel when the images that pages show are searched for; this hides the latency of S3.
AT_ONCE = 128
# The largest share of undecodable characters in a page.
MAX_BAD = 0.1


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
        path = unit.uri.removeprefix(tree.uri(""))
        data = tree.read(path)
        if isinstance(data, Fault):
            yield data
            return
        parsed = page.parse(data)
        del data
        yield fault_of(unit.uri, parsed) or _document(OneDocument(tree), path, parsed)


def fault_of(uri: str, parsed: page.Page) -> Fault | None:
    """Return the Fault of a parsed page that cannot be used as a document, or None."""
    if parsed.too_large:
        return Fault(uri, "too_large", parsed.too_large)
    if parsed.n_bad > MAX_BAD * parsed.n_letters:
        detail = f"{parsed.n_bad} of {parsed.n_letters} letters are no text in {parsed.charset}"
        return Fault(uri, "bad_encoding", detail)
    if parsed.broken:
        return Fault(uri, "bad_record", f"the markup cannot be read to its end: {parsed.broken}")
    return Fault(uri, "empty", "a page without content") if parsed.root is None else None


def _document(tree: Tree, path: str, parsed: page.Page) -> Document:
    """Build a page's document; read the image files that it shows."""
    base = page.base(parsed.root)
    found = reading_order.items(parsed.root)
    linked = {
        item: [resolve(tree, path, source, base) for source in item.sources]
        for item in found
        if isinstance(item, PictureReference)
    }
    files = _files(tree, [links[0] for links in linked.values() if links])
    items: list[Picture | Text] = []
    position = 0
    for item in found:
        if isinstance(item, Text):
            items.append(item)
        else:
            nowhere = f"{tree.uri(path)}#picture-{position}"
            items.append(_picture(tree, linked[item], files, nowhere, position, item.alt_text))
            position += 1
    about = page.metadata(parsed.root) | {"charset": parsed.charset}
    if parsed.n_bad:
        about["undecodable_letters"] = parsed.n_bad
    return Document(tree.uri(path), page.title(parsed.root), about, tuple(items))


def _files(tree: Tree, links: list[Link]) -> dict[str, bytes | Fault]:
    """Read the files that the page most likely shows, each once and all in parallel; return contents by path."""
    paths = sorted({link.paths[0] for link in links if link.paths})
    return dict(zip(paths, tree.read_many(paths), strict=True))


def _picture(
    tree: Tree, links: list[Link], files: dict[str, bytes | Fault], nowhere: str, position: int, alt_text: str
) -> Picture:
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
            data = files[path] if path in files else tree.read(path)
            if not isinstance(data, Fault):
                return picture_of_file(tree, path, data, position, tree.uri(path), alt_text)
            refused.append((tree.uri(path), data))
    # A fault of an existing file tells more than a missing file.
    refused.sort(key=lambda pair: pair[1].reason == "missing")
    missing = nowhere, Fault(nowhere, "missing", "a picture element without an address")
    url, fault = refused[0] if refused else missing
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
    return [
        () if isinstance(data, Fault) else sorted(_shown(tree, entry.path, data, files))
        for entry, data in zip(pages, found, strict=True)
    ]


def _shown(tree: Tree, path: str, data: bytes, files: Container[str]) -> set[str]:
    """Collect the source's files that a page shows: of each image, the one file that is used."""
    parsed = page.parse(data)
    if fault_of(path, parsed):
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


FORMAT = HtmlFolder()
