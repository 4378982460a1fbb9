"""Read HTML pages with the images beside or in them: a page of a folder is a unit, a zip or tar is a unit."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Unit, picture_of_file
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.formats.image_folder import ImageFolder, claim_unnamed
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.image_elements import PLACEHOLDER_BYTES, ImageElements, PictureReference, is_placeholder
from pairmill.ops.read.page.links import NOT_FETCHED, Link, resolve
from pairmill.ops.read.places.archive import archive, peek
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import OneDocument, Tree

SUFFIXES = frozenset(("html", "htm", "xhtml"))
# Pages to read in parallel when the images that pages show are searched for; this hides the latency of S3.
AT_ONCE = 128
# Image files of which a listing remembers whether they are placeholders; some 16 MB.
MOST_REMEMBERED = 65_536


class HtmlFolder:
    """Format for folders of HTML pages; an image file that a page shows belongs to the page and is no document itself.

    A page is read again if its own file or the file of an image that it shows changes.
    """

    name = "html_folder"
    turn = 90
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = ".html, .htm or .xhtml pages"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim pages and the image files that they show; parse every page for this if there are image files.

        A page of a manual takes 1.1 ms. A small image is read, once, if the page names another image in its place.
        """
        has_pictures = files.has(PICTURE_SUFFIXES)

        @lru_cache(MOST_REMEMBERED)
        def is_small(path: str) -> bool:
            data = tree.read(path, PLACEHOLDER_BYTES)
            return not isinstance(data, Fault) and is_placeholder(data)

        for some in _by_bytes(files.of(SUFFIXES)):
            paths = [entry.path for entry in some]
            pages = tree.read_many(paths, page.MOST_BYTES) if has_pictures else [b""] * len(some)
            for entry, data in zip(some, pages, strict=True):
                pictures, others = _shown(tree, entry.path, data, files, is_small) if data else ({}, set())
                files.take(entry.path, *pictures, *others)
                etag = text_id(entry.etag, *pictures.values()) if pictures else entry.etag
                yield Unit(tree.uri(entry.path), entry.size, etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the document of one page, or a Fault if it cannot be read."""
        path = tree.path_of(unit.uri)
        data = tree.read(path)
        parsed = data if isinstance(data, Fault) else page.parse(unit.uri, data)
        del data
        if not isinstance(parsed, Fault) and (directive := page.opt_out(parsed.root)):
            # Its pictures stay those of the page, or of other pages: none becomes a document of its own.
            parsed = Fault(unit.uri, "opt_out", f"{directive}; the pictures that only it shows are left out too")
        yield parsed if isinstance(parsed, Fault) else _document(OneDocument(tree), path, parsed)


def _document(tree: OneDocument, path: str, parsed: page.Page) -> Document:
    """Build a page's document; read the image files that it shows."""
    base = page.base(parsed.root)
    items = reading_order.items(parsed.root)
    references = [item for item in items if isinstance(item, PictureReference)]
    linked = {source: resolve(tree, path, source, base) for each in references for source in each.all_sources}
    # Read the files that the page most likely shows in parallel; OneDocument caches them.
    first = {link.paths[0] for each in references if each.sources and (link := linked[each.sources[0]]).paths}
    tree.read_many(sorted(first))

    def read_picture(reference: PictureReference, position: int) -> Picture:
        alt_text = reference.alt_text

        def find(source: str, refused: list[tuple[str, Fault]]) -> Picture | None:
            link = linked[source]
            if link.data:
                return Picture(position, link.url, alt_text, link.data)
            if link.fault and source != reference.named_placeholder:
                refused.append((link.url, link.fault))
            for each in link.paths:
                data = tree.read(each)
                if not isinstance(data, Fault):
                    return picture_of_file(tree, each, data, position, tree.uri(each), alt_text)
                refused.append((tree.uri(each), data))
            refused.sort(key=lambda pair: pair[1].reason == "missing")  # tell rather of a file that is there
            return None

        nowhere = Fault(f"{tree.uri(path)}#picture-{position}", "missing", "a picture element without an address")
        return page.choose_picture(reference, position, nowhere, find)

    about: dict[str, object] = {"charset": parsed.charset}
    if parsed.n_bad:
        about["undecodable_letters"] = parsed.n_bad
    return page.build_document(tree.uri(path), parsed, items, read_picture, about)


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


def _shown(
    tree: Tree, path: str, data: bytes | Fault, files: FileTable, is_small: Callable[[str], bool]
) -> tuple[dict[str, str], set[str]]:
    """Return the files that a page uses, of each image one: etag by path, sorted; and those of its other addresses.

    ``is_small`` tells whether the file at a path is a placeholder.
    """
    parsed = data if isinstance(data, Fault) else page.parse(path, data)
    if isinstance(parsed, Fault):
        return {}, set()
    base = page.base(parsed.root)
    chosen: dict[str, str] = {}
    others: set[str] = set()
    for reference in ImageElements(parsed.root):
        links = {source: resolve(tree, path, source, base) for source in reference.all_sources}
        held = {
            source: next((entry for each in link.paths if (entry := files.get(each))), link.data)
            for source, link in links.items()
        }
        if isinstance(entry := _chosen(reference, links, held, is_small), Entry):
            chosen[entry.path] = entry.etag
        others |= {entry.path for source in reference.sources if isinstance(entry := held[source], Entry)}
    return dict(sorted(chosen.items())), others - chosen.keys()


def _chosen(
    reference: PictureReference, links: dict[str, Link], held: dict[str, Entry | bytes], is_small: Callable[[str], bool]
) -> Entry | bytes | None:
    """Return the file or the embedded bytes that `page.choose_picture` will choose; None if there are none.

    ``held`` has the listed file or the bytes, b'' for neither, of each address. A file is read only if another address
    may count in its place.
    """
    links = {source: link for source, link in links.items() if source != reference.named_placeholder}
    only = [found for source in links if (found := held[source])]
    is_remote = reference.has_choice and any(link.fault and link.fault.detail == NOT_FETCHED for link in links.values())

    def is_replaceable(found: Entry | bytes) -> bool:
        if isinstance(found, bytes):
            return is_placeholder(found)
        return found.size <= PLACEHOLDER_BYTES and (is_remote or only != [found]) and is_small(found.path)

    found, is_replaced = reference.choose(lambda source: held[source] or None, is_replaceable)
    return None if is_replaced and is_remote else found


class HtmlArchive:
    """Format for archives, read like the folder that they extract to; tars of samples without pages are not claimed."""

    name = "html_archive"
    turn = 20
    version = 1
    suffixes: frozenset[str] = frozenset(("zip", "tar", "tgz", "gz"))
    expects = ".zip or .tar(.gz) archives of pages, .zip of pictures"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim zips of pages or images, damaged ones too, and tars that hold pages."""
        for entry in files.of(self.suffixes):
            names = peek(tree, entry)
            wanted = SUFFIXES | PICTURE_SUFFIXES if entry.suffix == "zip" else SUFFIXES
            is_damaged = entry.suffix == "zip" and not names  # from its start: read() returns the fault
            if is_damaged or any(Entry(name, 0, "").suffix in wanted for name in names):
                files.take(entry.path)
                yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield documents of the archive's pages, then of other images; a Fault for each unreadable file."""
        with archive(tree, tree.path_of(unit.uri)) as packed:
            files, pages, pictures = FileTable(), HtmlFolder(), ImageFolder()
            yield from packed.list_into(files)
            for reader, claim in ((pages, pages.claim), (pictures, pictures.claim), (pictures, claim_unnamed)):
                files.begin_turn()
                for inside in claim(packed, files):
                    yield from reader.read(packed, inside)


FORMATS = (HtmlFolder(), HtmlArchive())
