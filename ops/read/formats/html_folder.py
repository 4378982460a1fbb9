"""Read folders of HTML pages with their pictures beside them or embedded. One page is a unit and a document."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, picture_of_file
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.links import Link, resolve
from pairmill.ops.read.page.picture_reference import PictureReference, references
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree

SUFFIXES = frozenset(("html", "htm", "xhtml"))
# Pages read at once when all are searched for the pictures they show: hides the distance of S3.
AT_ONCE = 128
# Beyond this share of letters that cannot be decoded, a page is no text.
MAX_BAD = 0.1


class HtmlFolder:
    """Read pages; a picture file that any page shows is taken with it and is no document of its own.

    A page is read again when its own file changes, or that of a picture that it shows.
    """

    name = "html_folder"
    turn = 90
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = ".html, .htm or .xhtml pages"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim pages and the pictures they show; where picture files are, every page is parsed for it (0.3 ms)."""
        has_pictures = files.has(PICTURE_SUFFIXES)
        for some in _by_bytes(files.of(SUFFIXES)):
            shown = _shown_by(tree, some, files) if has_pictures else [()] * len(some)
            for entry, pictures in zip(some, shown, strict=True):
                etags = [found.etag for path in pictures if (found := files.get(path))]
                files.take(entry.path, *pictures)
                etag = text_id(entry.etag, *etags) if pictures else entry.etag
                yield Unit(tree.uri(entry.path), entry.size, etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = unit.uri.removeprefix(tree.uri(""))
        data = tree.read(path)
        if isinstance(data, Fault):
            yield data
            return
        parsed = page.parse(data)
        del data
        yield fault_of(unit.uri, parsed) or _document(OneDocument(tree), path, parsed)


def fault_of(uri: str, parsed: page.Page) -> Fault | None:
    """Say why a parsed page cannot be used as a document; None when it can."""
    if parsed.too_large:
        return Fault(uri, "too_large", parsed.too_large)
    if parsed.n_bad > MAX_BAD * parsed.n_letters:
        detail = f"{parsed.n_bad} of {parsed.n_letters} letters are no text in {parsed.charset}"
        return Fault(uri, "bad_encoding", detail)
    if parsed.broken:
        return Fault(uri, "bad_record", f"the markup cannot be read to its end: {parsed.broken}")
    return Fault(uri, "empty", "a page without content") if parsed.root is None else None


def _document(tree: Tree, path: str, parsed: page.Page) -> Document:
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
    """Read the files that the page most likely shows, each once and all at once: contents by path."""
    paths = sorted({link.paths[0] for link in links if link.paths})
    return dict(zip(paths, tree.read_many(paths), strict=True))


def _picture(
    tree: Tree, links: list[Link], files: dict[str, bytes | Fault], nowhere: str, position: int, alt_text: str
) -> Picture:
    """Take the first link that has bytes; if none has, the first one's address with its fault."""
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
    # A file that is there and cannot be used says more than one that is not.
    refused.sort(key=lambda pair: pair[1].reason == "missing")
    missing = nowhere, Fault(nowhere, "missing", "a picture element without an address")
    url, fault = refused[0] if refused else missing
    return Picture(position, url, alt_text, b"", fault)


def _by_bytes(pages: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Cut pages into runs of AT_ONCE, or of as many as are parsed of one page."""
    some: list[Entry] = []
    for entry in pages:
        if some and (len(some) == AT_ONCE or sum(each.size for each in some) + entry.size > page.MOST_BYTES):
            yield some
            some = []
        some.append(entry)
    if some:
        yield some


def _shown_by(tree: Tree, pages: list[Entry], files: Container[str]) -> list[Sequence[str]]:
    """List for each page the picture files that it shows, sorted by name."""
    found = tree.read_many([entry.path for entry in pages], page.MOST_BYTES)
    return [
        () if isinstance(data, Fault) else sorted(_shown(tree, entry.path, data, files))
        for entry, data in zip(pages, found, strict=True)
    ]


def _shown(tree: Tree, path: str, data: bytes, files: Container[str]) -> set[str]:
    """Collect the source's files that the page shows; of a picture's alternatives only the one that will be taken."""
    parsed = page.parse(data)
    if fault_of(path, parsed):
        return set()
    base = page.base(parsed.root)
    shown = (_chosen(tree, path, base, reference, files) for reference in references(parsed.root))
    return {choice for choice in shown if choice}


def _chosen(tree: Tree, path: str, base: str, reference: PictureReference, files: Container[str]) -> str:
    for source in reference.sources:
        link = resolve(tree, path, source, base)
        if link.data:
            return ""
        for candidate in link.paths:
            if candidate in files:
                return candidate
    return ""


FORMAT = HtmlFolder()
