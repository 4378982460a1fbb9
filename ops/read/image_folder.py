"""Picture files, each a document of its own, with a caption from the text file of the same stem where there is one."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from ops.fault import Fault
from ops.identity import text_id
from ops.read.charset import decode_text
from ops.read.document import Claim, Document, Picture, Text, Unit
from ops.read.tree import Entry, Tree

DECODED = ("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff", "avif")
# Listed although they are not decoded, so that such a file is shown in quarantine instead of being passed over.
NOT_DECODED = ("heic", "heif", "jxl", "jp2", "ico", "svg", "psd")
SUFFIXES = frozenset(DECODED + NOT_DECODED)


class ImageFolder:
    """One picture, one unit, one document."""

    name = "image_folder"
    suffixes: frozenset[str] = SUFFIXES
    expects = "pictures such as .jpg, .png or .webp, with captions in .txt files of the same name"

    def detect(self, tree: Tree, entries: list[Entry]) -> bool:
        return any(entry.suffix in SUFFIXES for entry in entries)

    def claim(self, tree: Tree, entries: list[Entry]) -> Claim:
        captions = {_stem(entry.path): entry for entry in entries if entry.suffix == "txt"}
        units: list[Unit] = []
        taken: set[str] = set()
        for entry in entries:
            if entry.suffix in SUFFIXES:
                caption = captions.get(_stem(entry.path))
                etag = text_id(entry.etag, caption.etag) if caption else entry.etag
                units.append(Unit(tree.uri(entry.path), entry.size, etag, self.name))
                taken |= {entry.path, caption.path} if caption else {entry.path}
        return Claim(units, taken)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = unit.uri.removeprefix(tree.uri(""))
        data, caption_data = tree.read_many([path, _stem(path) + ".txt"])
        # A text file that is not there is the usual case, no fault.
        caption = "" if isinstance(caption_data, Fault) else " ".join(decode_text(caption_data).text.split())
        fault = data if isinstance(data, Fault) else None
        picture = Picture(0, unit.uri, caption, b"" if isinstance(data, Fault) else data, fault)
        yield Document(
            unit.uri, posixpath.basename(_stem(path)), {}, (picture, Text(caption)) if caption else (picture,)
        )


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]
