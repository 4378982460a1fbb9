"""Read picture files, each a document; a .txt of the same stem is its caption, a .json its metadata."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from catalog.terms.ids import text_id
from ops.fault import Fault
from ops.read.document import Claim, Document, Text, Unit, shown_file
from ops.read.document_metadata import clean, parsed, storable
from ops.read.page.charset import decode_text
from ops.read.places.tree import Entry, Tree

DECODED = ("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff", "avif")
# Listed although they are not decoded, so that such a file is shown in quarantine instead of being passed over.
NOT_DECODED = ("heic", "heif", "jxl", "jp2", "ico", "svg", "psd")
SUFFIXES = frozenset(DECODED + NOT_DECODED)
BESIDE = ("txt", "json")
# Names of the caption in the JSON, best first; img2dataset writes such files too (output_format=files).
CAPTIONS = ("caption", "text", "alt", "alt_text")


class ImageFolder:
    """Read one picture as one unit and one document."""

    name = "image_folder"
    turn = 100
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = "pictures such as .jpg, .png or .webp, with captions in .txt and metadata in .json files of the same name"

    def detect(self, tree: Tree, entries: list[Entry]) -> bool:
        return any(entry.suffix in SUFFIXES for entry in entries)

    def claim(self, tree: Tree, entries: list[Entry]) -> Claim:
        beside = {entry.path: entry for entry in entries if entry.suffix in BESIDE}
        units: list[Unit] = []
        taken: set[str] = set()
        for entry in entries:
            if entry.suffix in SUFFIXES:
                more = [beside[path] for path in _beside(entry.path) if path in beside]
                etag = text_id(entry.etag, *(each.etag for each in more)) if more else entry.etag
                units.append(Unit(tree.uri(entry.path), entry.size, etag, self.name))
                taken |= {entry.path, *(each.path for each in more)}
        return Claim(units, taken)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = unit.uri.removeprefix(tree.uri(""))
        data, caption_data, said_data = tree.read_many([path, *_beside(path)])
        # Neither file need be there: most pictures have none.
        said = {} if isinstance(said_data, Fault) else parsed(said_data)
        said = said if isinstance(said, dict) else {"undecodable": "json"}
        caption = "" if isinstance(caption_data, Fault) else " ".join(decode_text(caption_data).text.split())
        caption = caption or next((clean(said[name]) for name in CAPTIONS if clean(said.get(name))), "")
        picture = shown_file(tree, path, data, 0, clean(said.get("url")) or unit.uri, caption)
        title = clean(said.get("title")) or posixpath.basename(_stem(path))
        yield Document(unit.uri, title, storable(said), (picture, Text(caption)) if caption else (picture,))


def _beside(path: str) -> tuple[str, str]:
    return _stem(path) + ".txt", _stem(path) + ".json"


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


FORMAT = ImageFolder()
