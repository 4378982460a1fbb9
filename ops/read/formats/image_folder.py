"""Read picture files, each a document; a .txt of the same stem is its caption, a .json its metadata.

Names only say which files are read together. What a file is, is seen in its first bytes by the worker that reads it: a
file without a picture's name (``a1b2c3d4e5``, ``photo.jpg.1``) is one if it begins as one; beside it stand
``a1b2c3d4e5.txt`` and ``photo.jpg.1.json``.
"""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.image.header import format_of
from pairmill.ops.read.document import Document, Text, Unit, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean, parsed
from pairmill.ops.read.page.charset import decode_text
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree

DECODED = ("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff", "avif")
# Listed although they are not decoded, so that such a file is shown in quarantine instead of being passed over.
NOT_DECODED = ("heic", "heif", "jxl", "jp2", "ico", "svg", "psd")
SUFFIXES = frozenset(DECODED + NOT_DECODED)
# Cameras' own files are TIFF by their first bytes, but what a decoder finds first in them is a thumbnail.
CAMERA = frozenset(("3fr", "arw", "cr2", "dng", "iiq", "nef", "nrw", "orf", "pef", "rw2", "sr2", "srw"))
HEAD_BYTES = 512
# Beyond this share of letters that cannot be decoded, a file beside a picture is no caption.
MAX_BAD = 0.1
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

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        return (_claimed(tree, files, entry) for entry in files.of(SUFFIXES))

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = unit.uri.removeprefix(tree.uri(""))
        if _is_named(path) or is_picture(tree, path):
            yield from _document(tree, path)
            return
        yield no_picture(tree.uri(path), path)
        for each in _beside(path):
            if tree.exists(each):
                is_one = is_picture(tree, each)
                yield _alone(tree, each) if is_one else no_picture(tree.uri(each), each)


def claim_unnamed(tree: Tree, files: FileTable, named: Collection[str]) -> Iterator[Unit]:
    """Take files whose names say nothing: all but those with a suffix of ``named``.

    Each is a unit, and a document if it begins as a picture does.
    """
    for entry in files.beyond(named):
        if files.is_free(entry.path):  # not taken with the one before
            yield _claimed(tree, files, entry)


def is_picture(tree: Tree, path: str) -> bool:
    """Whether a file begins as a picture that is read does. Raises SourceError as Tree.open does."""
    if Entry(path, 0, "").suffix in CAMERA:
        return False
    try:
        with tree.open(path) as file:
            return bool(format_of(file.read(HEAD_BYTES)))
    except OSError:
        return False  # gone, empty on S3, or not to be read: read() tells which


def no_picture(uri: str, path: str) -> Fault:
    """Make the fault of a file that no format reads."""
    detail = f"neither a page, a table of documents nor a picture that is read ('{path}'): left alone"
    return Fault(uri, "not_an_image", detail)


def _claimed(tree: Tree, files: FileTable, entry: Entry) -> Unit:
    """Take a picture with the texts beside it."""
    beside = [found for path in _beside(entry.path) if (found := files.get(path)) and found.suffix in BESIDE]
    files.take(entry.path, *(each.path for each in beside))
    etag = text_id(entry.etag, *(each.etag for each in beside)) if beside else entry.etag
    return Unit(tree.uri(entry.path), entry.size, etag, ImageFolder.name)


def _document(tree: Tree, path: str) -> Iterator[Document | Fault]:
    """Yield the document of a picture, and a fault for what stands beside it and is no text."""
    data, caption_data, said_data = tree.read_many([path, *_beside(path)])
    # Neither file need be there: most pictures have none.
    texts: list[str] = []
    for beside, found in zip(_beside(path), (caption_data, said_data), strict=True):
        text = "" if isinstance(found, Fault) else readable(tree.uri(beside), found)
        if isinstance(text, Fault):
            yield text
        texts.append(text if isinstance(text, str) else "")
    caption = " ".join(texts[0].split())
    found = parsed(said_data) if texts[1] and isinstance(said_data, bytes) else {}
    said: dict[str, object] = found if isinstance(found, dict) else {"undecodable": "json"}
    caption = caption or next((clean(said[name]) for name in CAPTIONS if clean(said.get(name))), "")
    yield _made(tree, path, data, said, caption)


def _alone(tree: Tree, path: str) -> Document:
    return _made(tree, path, tree.read(path), {}, "")


def _made(tree: Tree, path: str, data: bytes | Fault, said: dict[str, object], caption: str) -> Document:
    picture = picture_of_file(tree, path, data, 0, clean(said.get("url")) or tree.uri(path), caption)
    title = clean(said.get("title")) or posixpath.basename(_stem(path))
    return Document(tree.uri(path), title, as_storable(said), (picture, Text(caption)) if caption else (picture,))


def readable(uri: str, data: bytes) -> str | Fault:
    """Decode the text beside a picture; or make the fault of a file that is none."""
    if format_of(data[:HEAD_BYTES]):
        detail = "a picture, although it is named as the text of the one beside it: rename it and it is read"
        return Fault(uri, "bad_encoding", detail)
    found = decode_text(data)
    if found.n_bad > MAX_BAD * len(found.text):
        return Fault(uri, "bad_encoding", f"{found.n_bad} letters of this text are none in {found.charset}")
    return found.text


def _beside(path: str) -> tuple[str, str]:
    stem = _stem(path) if _is_named(path) else path
    return stem + ".txt", stem + ".json"


def _is_named(path: str) -> bool:
    return Entry(path, 0, "").suffix in SUFFIXES


def _stem(path: str) -> str:
    return posixpath.splitext(path)[0]


FORMAT = ImageFolder()
