"""Read HTML pages with their images, or images alone, from a zip or tar. One archive is one unit."""

from __future__ import annotations

from collections.abc import Iterator

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.example import PAGE, Example, picture, zip_of
from pairmill.ops.read.formats.html_folder import SUFFIXES as PAGE_SUFFIXES
from pairmill.ops.read.formats.html_folder import HtmlFolder
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.formats.image_folder import ImageFolder, claim_unnamed
from pairmill.ops.read.places.archive import ArchiveTree, archive, peek
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree

INSIDE = (HtmlFolder(), ImageFolder())


class HtmlArchive:
    """Read an archive like the folder that it would extract to; tars of samples without pages belong to webdataset."""

    name = "html_archive"
    turn = 20
    version = 1
    suffixes: frozenset[str] = frozenset(("zip", "tar", "tgz", "gz"))
    expects = ".zip or .tar(.gz) archives of pages, .zip of pictures"
    examples = (
        Example(
            "the same packed: `.zip .tar .tar.gz .tgz`",
            "site.zip",
            lambda: {"site.zip": zip_of({"s/p.html": PAGE, "s/a.jpg": picture()})},
            images=1,
        ),
    )

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim zips of pages or images, and tars that hold pages."""
        for entry in files.of(self.suffixes):
            if _is_ours(tree, entry):
                files.take(entry.path)
                yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one archive, and a Fault for each that cannot be read."""
        try:
            with archive(tree, tree.path_of(unit.uri)) as packed:
                yield from _documents(packed)
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


def _is_ours(tree: Tree, entry: Entry) -> bool:
    """Return whether an archive holds pages, or, for a zip, images; a damaged zip counts too."""
    is_zip = entry.suffix == "zip"
    if is_zip and not peek(tree, entry):
        return True  # damaged from its start: read() returns the fault
    wanted = PAGE_SUFFIXES | PICTURE_SUFFIXES if is_zip else PAGE_SUFFIXES
    return any(Entry(name, 0, "").suffix in wanted for name in peek(tree, entry))


def _documents(packed: ArchiveTree) -> Iterator[Document | Fault]:
    """Yield the documents of an open archive: pages, then named images, then images without a telling suffix."""
    files = FileTable()
    yield from packed.list_into(files)
    for reader in INSIDE:
        files.begin_turn()
        for unit in reader.claim(packed, files):
            yield from reader.read(packed, unit)
    files.begin_turn()
    for unit in claim_unnamed(packed, files, ()):
        yield from INSIDE[-1].read(packed, unit)


FORMATS = (HtmlArchive(),)
