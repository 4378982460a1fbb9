"""Open a source of interleaved documents, list its units and read their documents and faults.

To add a format: one file in ``formats`` with a class like ``Format`` and its instance as ``FORMAT``.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from catalog.terms.secrets import without_secrets
from ops.fault import Fault
from ops.read import formats
from ops.read.document import Claim, Document, Format, Picture, Text, Unit
from ops.read.places.tree import Entry, LocalTree, SourceError, Tree, local_tree
from ops.read.places.web import WebTree, web_tree

if TYPE_CHECKING:
    from ops.read.places.s3 import S3Tree

__all__ = ["Document", "Picture", "Source", "SourceError", "Text", "Unit", "open_source"]


def _readers() -> tuple[Format, ...]:
    """Every format of the folder, in the order of their turns."""
    modules = [importlib.import_module(f"{formats.__name__}.{found.name}") for found in iter_modules(formats.__path__)]
    return tuple(sorted((m.FORMAT for m in modules if hasattr(m, "FORMAT")), key=lambda reader: reader.turn))


READERS = _readers()
FORMATS = {reader.name: reader for reader in READERS}
FORMAT_NAME = re.compile(r"[a-z][a-z0-9_]{2,31}")
WEB = ("https://", "http://")
VARIABLE = re.compile(r"\$\{(\w+)\}")


@dataclass
class Source:
    """List and read the documents of one place, which may hold several formats: each takes the files that are its own.

    ``uri`` is the same from whatever folder and however the place was named: ids of documents are made from it. Pickles
    small: the listing is left out, so a worker can read units, and lists anew only when asked to.
    """

    uri: str
    tree: Tree
    formats: tuple[str, ...]
    _listed: tuple[list[Unit], list[Fault]] | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_listed": None}

    def units(self) -> list[Unit]:
        """List what can be read, sorted by uri.

        Raises SourceError when nothing can be read or the place cannot be reached.
        """
        return self._list()[0]

    def ignored(self) -> list[Fault]:
        """List the files that belong to no unit and no document, each with the reason, sorted by uri.

        Raises SourceError as ``units`` does.
        """
        return self._list()[1]

    def read(self, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one unit in a fixed order, and a Fault for each that cannot be read.

        Raises SourceError when the place as a whole stops answering (S3, the web).
        """
        return FORMATS[unit.format].read(self.tree, unit)

    def _list(self) -> tuple[list[Unit], list[Fault]]:
        if self._listed is None:
            entries, faults = self.tree.list()
            claim = _claim(self.tree, entries, self.formats)
            if not claim.units:
                raise SourceError(_nothing(self.uri, entries, self.formats))
            faults += [_left_over(self.tree, entry) for entry in entries if entry.path not in claim.taken]
            units = sorted(claim.units, key=lambda unit: unit.uri)
            self._listed = units, sorted(faults, key=lambda fault: fault.item)
        return self._listed


def _claim(tree: Tree, entries: list[Entry], formats: tuple[str, ...]) -> Claim:
    units: list[Unit] = []
    taken: set[str] = set()
    for name in formats:
        left = [entry for entry in entries if entry.path not in taken]
        if FORMATS[name].detect(tree, left):
            claim = FORMATS[name].claim(tree, left)
            units += claim.units
            taken |= claim.taken
    return Claim(units, taken)


def _left_over(tree: Tree, entry: Entry) -> Fault:
    readers = [reader for reader in READERS if entry.suffix in reader.suffixes]
    if readers and entry.suffix != "gz":
        expected = "; ".join(reader.expects for reader in readers)
        return Fault(tree.uri(entry.path), "bad_record", f"cannot be read, or of no known shape; expected {expected}")
    detail = f"neither a page, a table of documents nor a picture that is read ('{entry.path}'): left alone"
    return Fault(tree.uri(entry.path), "not_an_image", detail)


def _nothing(uri: str, entries: list[Entry], formats: tuple[str, ...]) -> str:
    kinds = ", ".join(f"{name} ({FORMATS[name].expects})" for name in formats)
    if not entries:
        return f"source '{uri}' is empty; give a folder or prefix that holds documents: {kinds}"
    return f"source '{uri}': none of its {len(entries)} files is a document; known are {kinds}"


def open_source(uri: str) -> Source:
    """Open a local path, ``s3://bucket/prefix`` or a list at ``https://host/name.parquet``; one file is a source too.

    The formats are told apart by content, and one tree may hold several; a name of FORMATS before the place allows only
    that one: ``obelics:s3://bucket/prefix``. Nothing is listed yet: an empty or unreachable place shows in ``units()``.

    ``${NAME}`` in it is the environment's value, so that a signed address need stand nowhere.

    Raises SourceError for an unknown format or scheme, a variable that is not set, and for a local path that does not
    exist.
    """
    uri = _expanded(uri)
    format, place = split_format(uri)
    if format and format not in FORMATS:
        near = get_close_matches(format, FORMATS, n=1)
        remedy = f"did you mean '{near[0]}'? " if near else ""
        raise SourceError(
            f"source '{without_secrets(uri)}': no format is called '{format}'; {remedy}known are {', '.join(FORMATS)}"
        )
    formats = (format,) if format else tuple(FORMATS)
    tree = _tree(place)
    return Source(f"{format}:{tree.place}" if format else tree.place, tree, formats)


def _expanded(uri: str) -> str:
    if os.path.exists(uri):
        return uri
    for name in VARIABLE.findall(uri):
        if not os.environ.get(name):
            raise SourceError(f"source '{without_secrets(uri)}': the environment has no {name}; export it")
    return VARIABLE.sub(lambda found: os.environ[found[1]], uri)


def split_format(uri: str) -> tuple[str, str]:
    """Split 'obelics:s3://bucket' into ('obelics', 's3://bucket'); ('', uri) when no format stands before the place."""
    name, marked, place = uri.partition(":")
    is_scheme = place.startswith("//") and name not in FORMATS
    if not marked or is_scheme or not FORMAT_NAME.fullmatch(name) or os.path.exists(uri):
        return "", uri
    return name, place


def _tree(place: str) -> LocalTree | S3Tree | WebTree:
    scheme, marked, _ = place.partition("://")
    if marked and scheme == "s3":
        from ops.read.places.s3 import s3_tree  # s3fs takes 0.5 s to import, which a local source need not pay

        return s3_tree(place, frozenset().union(*(reader.suffixes for reader in READERS)))
    if place.startswith(WEB):
        return web_tree(place)
    if marked and scheme != "file":
        raise SourceError(
            f"source '{without_secrets(place)}': '{scheme}://' is not read; give a local path, s3://bucket/prefix or https://host/list"
        )
    return local_tree(place)
