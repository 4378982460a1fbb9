"""Read JSON lines of Multimodal C4: ``text_list``, and ``image_info`` with the text to which each image belongs.

Image files are beside the table under their ``image_name``; other images are at their ``raw_url``. An image precedes
the text with its ``matched_text_index``. Files are named ``docs_….jsonl.zip``, as released (arXiv 2304.06939).
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, as_storable, clean, lines, picture_of_file
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import tables

# The similarity matrix has as many numbers as images times texts, and comes from another model.
LEFT_OUT = ("text_list", "similarity_matrix")


class Mmc4:
    """Format for JSON lines of Multimodal C4; each line is a document."""

    name = "mmc4"
    turn = 40
    version = 1
    suffixes: frozenset[str] = tables.LINES | {"gz", "zip"}
    expects = ".jsonl (or .jsonl.zip, .jsonl.gz) with 'text_list' and 'image_info'"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim JSON-lines files and the images that they name; reads every line if the source has image files."""
        has_pictures = files.has(PICTURE_SUFFIXES)
        for entry in tables.tables_of_shape(tree, files, {"text_list", "image_info"}.issubset):
            files.take(entry.path)
            for unit in tables.units(tree, entry, self.name):
                for found in tables.rows(tree, unit) if has_pictures else ():
                    if not isinstance(found, Fault):
                        named = {each for info in _infos(found[1]) for each in _paths(tree, entry.path, info)}
                        files.take(*(each for each in named if Entry(each, 0, "").suffix in PICTURE_SUFFIXES))
                yield unit

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a document for each line of the unit, and a Fault for each that cannot be read."""
        return tables.documents(tree, unit, _document)


def _infos(row: dict[str, Any]) -> list[dict[str, Any]]:
    """List the dicts in a row's ``image_info``."""
    found = row.get("image_info")
    return [info for info in found if isinstance(info, dict)] if isinstance(found, list) else []


def _paths(tree: Tree, path: str, info: dict[str, Any]) -> tuple[str, ...]:
    """List the candidate files of an image, from its ``image_name``."""
    name = info.get("image_name")
    return resolve(tree, path, name).paths if isinstance(name, str) and "://" not in name else ()


def _document(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    """Build a line's document; return a Fault if the lists are missing or empty."""
    words, infos = row.get("text_list"), _infos(row)
    if not isinstance(words, list) or not isinstance(row.get("image_info"), list):
        return Fault(uri, "bad_record", "expected the lists 'text_list' and 'image_info'")
    places: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for info in infos:
        index = info.get("matched_text_index")
        # An image without a valid index comes last.
        places[index if isinstance(index, int) and 0 <= index < len(words) else len(words)].append(info)
    items: list[Picture | Text] = []
    position = 0
    for index, text in enumerate([*words, None]):
        for info in places[index]:
            items.append(_picture(tree, path, uri, position, info))
            position += 1
        items += map(Text, lines(text))
    if not items:
        return Fault(uri, "bad_record", "the line holds neither a text nor an image")
    about = as_storable({name: value for name, value in row.items() if name not in LEFT_OUT})
    return Document(uri, clean(row.get("title")), about, tuple(items))


def _picture(tree: Tree, path: str, uri: str, position: int, info: dict[str, Any]) -> Picture:
    """Build one image from its file, else from its ``raw_url``."""
    alt = clean(info.get("alt_text"))
    raw = info.get("raw_url")
    link = resolve(tree, path, raw) if isinstance(raw, str) and raw.strip() else None
    for candidate in _paths(tree, path, info):
        if isinstance(data := tree.read(candidate), bytes):
            return picture_of_file(tree, candidate, data, position, link.url if link else tree.uri(candidate), alt)
    if link is None:
        url = f"{uri}&picture={position}"
        return Picture(position, url, alt, b"", Fault(url, "missing", "neither a file beside it nor a raw_url"))
    fault = link.fault or (None if link.data else Fault(link.url, "missing", "the raw_url is no web address"))
    return Picture(position, link.url, alt, b"" if fault else link.data, fault)


FORMATS = (Mmc4(),)
