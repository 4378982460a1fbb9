"""Open a source of interleaved documents, list its units, and read documents and faults of a unit."""

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pairmill.catalog.terms.error import did_you_mean
from pairmill.catalog.terms.secrets import hide_secrets, without_secrets
from pairmill.ops.fault import Fault
from pairmill.ops.read.declared_formats import FORMAT_NAME, formats
from pairmill.ops.read.document import Document, Format, Picture, Text, Unit
from pairmill.ops.read.formats import image_folder
from pairmill.ops.read.places.file_table import Entry, FileTable, Kept
from pairmill.ops.read.places.tree import LocalTree, SourceError, Tree, local_tree
from pairmill.ops.read.places.web import WebTree, web_tree
from pairmill.ops.read.records import tables

if TYPE_CHECKING:
    from pairmill.ops.read.places.s3 import S3Tree

__all__ = ["Document", "Picture", "Source", "SourceError", "Text", "Unit", "open_source"]


WEB = ("https://", "http://")
# 's3:/bucket', 's3:bucket' and 's3//bucket' are no paths, but addresses that lack a part.
MISSPELT = re.compile(r"(s3|https?)(?::/?(?!/)|//)(.+)")
READ = "pages (.html), pictures (.jpg, .png, .webp), archives (.warc, .zip, .tar) or tables (.parquet, .csv, .jsonl)"
SHOWN = 12  # columns named of a table that cannot be read
VARIABLE = re.compile(r"\$\{(\w+)\}")
IGNORED = "ignored"
# If no file name suggests a format, this many files are opened to see whether any is an image.
LOOKED_INTO = 64


@dataclass
class Source:
    """A place with documents, possibly in several formats, each of which claims its own files.

    ``uri`` does not depend on the working directory or on how the place was written, because document ids derive from
    it. A Source holds no listing, so it pickles small and workers can read units with it.
    """

    uri: str
    tree: Tree
    formats: tuple[str, ...]

    def listed(self) -> Iterator[Unit | Fault]:
        """Yield the units, and a Fault for each file that belongs to no unit, sorted by URI.

        The listing is a table on disk until the iterator ends, so any length fits in memory. Raises SourceError if
        nothing can be read, or the source cannot be reached.
        """
        files = FileTable()
        files.keep(map(row_of, self.tree.list_into(files)))
        n_units = 0
        for unit in self._units(files):
            files.keep([row_of(unit)])
            n_units += 1
        if not n_units:
            raise SourceError(self._nothing(files))
        files.begin_turn()
        files.keep(row_of(_left_over(self.tree, entry)) for entry in files.beyond(()))
        return map(item_of, files.kept())

    def _units(self, files: FileTable) -> Iterator[Unit]:
        """Yield the units of each format; images of no telling suffix last, beside others or if `_holds_a_picture`."""
        n = 0
        for name in self.formats:
            files.begin_turn()
            for unit in formats()[name].claim(self.tree, files):
                yield unit
                n += 1
        files.begin_turn()
        if image_folder.ImageFolder.name in self.formats and (n or _holds_a_picture(self.tree, files)):
            yield from image_folder.claim_unnamed(self.tree, files, _suffixes() - {"gz"})

    def check(self) -> None:
        """Raise SourceError if the source has no unit or cannot be reached; stop at the first unit."""
        files = FileTable()
        for _ in self.tree.list_into(files):
            pass
        if next(self._units(files), None) is None:
            raise SourceError(self._nothing(files))

    def _nothing(self, files: FileTable) -> str:
        """Write the error message for a source without any unit, by its first file."""
        files.begin_turn()
        first, n = next(files.beyond(()), None), files.count()
        if first is None:
            return f"source '{self.uri}' is empty; give a folder, a file or a prefix that holds {READ}"
        readers = [each for each in _readers_of(first) if each.name in self.formats]
        if len(self.formats) == 1:
            readers = [formats()[self.formats[0]]]
        name = first.path.rpartition("/")[2]
        if not readers:
            what = f"'{name}' is nothing" if n == 1 else f"none of its {n:,} files ({name}, …) is anything"
            return f"source '{self.uri}': {what} that is read; give {READ}"
        known = tables.header(self.tree, first)
        names = list(known.columns)[:SHOWN] if known else []
        columns = f"; its columns are {', '.join(names)}" if names else ""
        if any("://" in each for each in names):
            columns += " (its first line is data: add a line with the columns' names, such as url,caption)"
        elif len(names) == 1 and (mark := next((each for each in ";|\t" if each in names[0]), "")):
            columns += f" (separated by {mark!r}: write commas, or tabs in a .tsv)"
        expected = "; or ".join(each.expects for each in readers)
        return f"source '{self.uri}': '{name}' cannot be read{columns}; expected {expected}"

    def units(self) -> list[Unit]:
        """Return the units, sorted by URI. Raises SourceError as ``listed`` does."""
        return [found for found in self.listed() if isinstance(found, Unit)]

    def ignored(self) -> list[Fault]:
        """Return a Fault for each file in no unit, sorted by URI. Raises SourceError as ``listed`` does."""
        return [found for found in self.listed() if isinstance(found, Fault)]

    def read(self, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in order, and a Fault for each unreadable one. Raises SourceError.

        A file that was deleted after the listing gives a Fault ``missing``.
        """
        try:
            yield from formats()[unit.format].read(self.tree, unit)
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


def row_of(found: Unit | Fault) -> Kept:
    """Convert a unit or fault to a row of the listing; a fault has the etag 'ignored' and its reason as the format."""
    if isinstance(found, Fault):
        return (found.item, 0, IGNORED, found.reason, found.detail)
    return (found.uri, found.size, found.etag, found.format, None)


def item_of(row: Kept) -> Unit | Fault:
    """Convert a row of the listing back to the unit or fault; the inverse of `row_of`."""
    uri, size, etag, kind, detail = row
    return Unit(uri, size, etag, kind) if detail is None else Fault(uri, kind, detail)


def _suffixes() -> frozenset[str]:
    """Return the suffixes that suggest a format; a compressed file ("gz") may be of any format."""
    return frozenset().union(*(reader.suffixes for reader in formats().values()))


def _readers_of(entry: Entry) -> list[Format]:
    """List the formats that a file's suffix suggests."""
    return [reader for reader in formats().values() if entry.suffix in reader.suffixes and entry.suffix != "gz"]


def _left_over(tree: Tree, entry: Entry) -> Fault:
    """Build the Fault for a file that no format claimed."""
    if readers := _readers_of(entry):
        expected = "; ".join(reader.expects for reader in readers)
        return Fault(tree.uri(entry.path), "bad_record", f"cannot be read, or of no known shape; expected {expected}")
    return image_folder.no_picture(tree.uri(entry.path), entry.path)


def _holds_a_picture(tree: Tree, files: FileTable) -> bool:
    """Return whether any file without a telling suffix is an image; True if more than LOOKED_INTO files have none."""
    # A SQLite file may be this process's own catalog: closing it would release the locks that the process holds on it.
    unnamed = (entry.path for entry in files.beyond(_suffixes() - {"gz"}) if not entry.suffix.startswith("sqlite"))
    some = list(islice(unnamed, LOOKED_INTO + 1))
    if len(some) > LOOKED_INTO:
        return True
    with ThreadPoolExecutor(LOOKED_INTO // 4) as pool:
        return any(pool.map(lambda path: image_folder.is_picture(tree, path), some))


def open_source(uri: str) -> Source:
    """Open a local folder or file, ``s3://bucket/prefix``, or a list at ``https://host/name.parquet`` as a source.

    The formats are detected by content, and one tree may hold several. A format's name before the place allows only
    that format: ``obelics:s3://bucket/prefix``. Nothing is listed yet.

    ``${NAME}`` in ``uri`` is replaced by the environment variable, so that a signed address need not be written down.
    Raises SourceError if the format or scheme is unknown, a variable is not set, or a local path does not exist.
    """
    uri = _expand(uri)
    format, place = split_format(uri)
    if (found := MISSPELT.fullmatch(uri)) and not os.path.exists(uri):
        raise SourceError(f"source '{without_secrets(uri)}': no such place; did you mean {found[1]}://{found[2]}?")
    if format and format not in formats():
        near = did_you_mean(format, formats())
        remedy = (f"{near} " if near else "") + f"known are {', '.join(formats())}"
        raise SourceError(f"source '{without_secrets(uri)}': no format is called '{format}'; {remedy}")
    tree = _tree(place)
    return Source(f"{format}:{tree.place}" if format else tree.place, tree, (format,) if format else tuple(formats()))


def _expand(uri: str) -> str:
    """Replace each ``${NAME}`` by its environment variable, unless ``uri`` is an existing path."""
    if os.path.exists(uri):
        return uri
    for name in VARIABLE.findall(uri):
        if not os.environ.get(name):
            raise SourceError(f"source '{without_secrets(uri)}': the environment has no {name}; export it")
    return VARIABLE.sub(lambda found: os.environ[found[1]], uri)


def split_format(uri: str) -> tuple[str, str]:
    """Split 'obelics:s3://bucket' into ('obelics', 's3://bucket'); return ('', uri) without a format's name."""
    name, marked, place = uri.partition(":")
    is_scheme = place.startswith("//") and name not in formats()
    if not marked or is_scheme or not FORMAT_NAME.fullmatch(name) or os.path.exists(uri):
        return "", uri
    return name, place


def _tree(place: str) -> "LocalTree | S3Tree | WebTree":
    """Open the file tree of a place by its scheme. Raises SourceError for an unknown scheme."""
    scheme, marked, _ = place.partition("://")
    if marked and scheme == "s3":
        if "@" in place.split("/")[2]:
            keys = "S3's keys are the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            raise SourceError(f"source '{hide_secrets(place)}': no user and password in an address; {keys}")
        from pairmill.ops.read.places.s3 import s3_tree  # importing s3fs takes 0.5 s, which a local source need not pay

        return s3_tree(place, _suffixes())
    if place.startswith(WEB):
        return web_tree(place)
    if marked and scheme != "file":
        remedy = "give a local path, s3://bucket/prefix or https://host/list"
        raise SourceError(f"source '{hide_secrets(place)}': '{scheme}://' is not read; {remedy}")
    return local_tree(place)
