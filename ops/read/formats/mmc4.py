"""Read JSON lines of Multimodal C4: ``text_list``, and ``image_info`` with the text that each picture belongs to.

Pictures lie beside the file under their ``image_name``, else they are at their ``raw_url``. A picture comes before the
text it is matched to (``matched_text_index``). Released as ``docs_….jsonl.zip``. After the dataset's card (arXiv
2304.06939).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.page.links import resolve
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import tables

# As many numbers as pictures times texts, of a model that is not ours.
LEFT_OUT = ("text_list", "similarity_matrix")


class Mmc4:
    """Read a line as a document."""

    name = "mmc4"
    turn = 40
    version = 1
    suffixes: frozenset[str] = tables.LINES | {"gz", "zip"}
    expects = ".jsonl (or .jsonl.zip, .jsonl.gz) with 'text_list' and 'image_info'"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim the files and the pictures their lines name; every line is read for that if picture files are there."""
        has_pictures = files.has(PICTURE_SUFFIXES)
        for entry in tables.shaped(tree, files, _fits):
            files.take(entry.path)
            for unit in tables.units(tree, entry, self.name):
                for found in tables.rows(tree, unit) if has_pictures else ():
                    if not isinstance(found, Fault):
                        named = {each for info in _infos(found[1]) for each in _paths(tree, entry.path, info)}
                        files.take(*(each for each in named if Entry(each, 0, "").suffix in PICTURE_SUFFIXES))
                yield unit

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = tables.path_of(tree, unit)
        for found in tables.rows(tree, unit):
            yield found if isinstance(found, Fault) else _document(OneDocument(tree), path, *found)


def _fits(kinds: dict[str, str]) -> bool:
    return {"text_list", "image_info"} <= set(kinds)


def _infos(row: dict[str, Any]) -> list[dict[str, Any]]:
    found = row.get("image_info")
    return [info for info in found if isinstance(info, dict)] if isinstance(found, list) else []


def _paths(tree: Tree, path: str, info: dict[str, Any]) -> tuple[str, ...]:
    name = info.get("image_name")
    return resolve(tree, path, name).paths if isinstance(name, str) and "://" not in name else ()


def _document(tree: Tree, path: str, uri: str, row: dict[str, Any]) -> Document | Fault:
    words, infos = row.get("text_list"), _infos(row)
    if not isinstance(words, list) or not isinstance(row.get("image_info"), list):
        return Fault(uri, "bad_record", "expected the lists 'text_list' and 'image_info'")
    places: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for info in infos:
        index = info.get("matched_text_index")
        # A picture without a place comes last.
        places[index if isinstance(index, int) and 0 <= index < len(words) else len(words)].append(info)
    items: list[Picture | Text] = []
    position = 0
    for index, text in enumerate([*words, None]):
        for info in places[index]:
            items.append(_picture(tree, path, uri, position, info))
            position += 1
        if clean(text):
            items.append(Text(clean(text)))
    if not items:
        return Fault(uri, "bad_record", "the line holds neither a text nor an image")
    about = as_storable({name: value for name, value in row.items() if name not in LEFT_OUT})
    return Document(uri, clean(row.get("title")), about, tuple(items))


def _picture(tree: Tree, path: str, uri: str, position: int, info: dict[str, Any]) -> Picture:
    alt = clean(info.get("alt_text"))
    raw = info.get("raw_url")
    link = resolve(tree, path, raw) if isinstance(raw, str) and raw.strip() else None
    for candidate in _paths(tree, path, info):
        data = tree.read(candidate)
        if isinstance(data, bytes):
            return picture_of_file(tree, candidate, data, position, link.url if link else tree.uri(candidate), alt)
    if link is None:
        url = f"{uri}&picture={position}"
        return Picture(position, url, alt, b"", Fault(url, "missing", "neither a file beside it nor a raw_url"))
    fault = link.fault or (None if link.data else Fault(link.url, "missing", "the raw_url is no web address"))
    return Picture(position, link.url, alt, b"" if fault else link.data, fault)


FORMAT = Mmc4()
