"""Read image files as documents; a .txt file of the same stem is the caption, a .json file the metadata.

Names only decide which files are read together. The worker that reads a file decides by its first bytes whether it is
an image. A file without an image's suffix (``a1b2c3d4e5``, ``photo.jpg.1``) is an image if it begins like one; its
caption and metadata are then ``a1b2c3d4e5.txt`` and ``photo.jpg.1.json``.
"""

import posixpath
from collections.abc import Collection, Iterator

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.image.header import format_of
from pairmill.ops.read import document
from pairmill.ops.read.charset import MAX_BAD, decode_text
from pairmill.ops.read.document import Document, Text, Unit, as_storable, clean, lines
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import Tree

DECODED = ("jpg", "jpeg", "jpe", "jfif", "png", "apng", "gif", "webp", "bmp", "dib", "tif", "tiff", "avif")
# Formats that are claimed but not decoded, so that such a file ends in quarantine instead of being ignored.
NOT_DECODED = ("heic", "heif", "jxl", "jp2", "ico", "svg", "psd")
SUFFIXES = frozenset(DECODED + NOT_DECODED)
# Raw camera files begin like TIFF, but a decoder finds a thumbnail first in them.
CAMERA = frozenset(("3fr", "arw", "cr2", "dng", "iiq", "nef", "nrw", "orf", "pef", "rw2", "sr2", "srw"))
HEAD_BYTES = 512
BESIDE = ("txt", "json")
# Keys of the caption in the JSON, best first; img2dataset writes such files too (output_format=files).
CAPTIONS = ("caption", "text", "alt", "alt_text")


class ImageFolder:
    """Format for folders of image files: one image is one unit and one document."""

    name = "image_folder"
    turn = 100
    version = 1
    suffixes: frozenset[str] = SUFFIXES
    expects = "pictures such as .jpg, .png or .webp, with captions in .txt and metadata in .json files of the same name"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim each file with an image suffix, with its caption and metadata files; yield their units."""
        return (_claim(tree, files, entry) for entry in files.of(SUFFIXES))

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the document of one image, and a Fault for each of its files that cannot be read."""
        path = tree.path_of(unit.uri)
        if _is_named(path) or is_picture(tree, path):
            yield from _document(tree, path)
            return
        yield no_picture(tree.uri(path), path)
        for each in _beside(path):
            if tree.exists(each):
                is_one = is_picture(tree, each)
                yield _build(tree, each, tree.read(each), {}, "") if is_one else no_picture(tree.uri(each), each)


def claim_unnamed(tree: Tree, files: FileTable, named: Collection[str] = ()) -> Iterator[Unit]:
    """Claim each file whose suffix is not in ``named``, and yield its unit; it becomes a document if it is an image."""
    for entry in files.beyond(named):
        if files.is_free(entry.path):  # not taken as caption or metadata of an earlier file
            yield _claim(tree, files, entry)


def is_picture(tree: Tree, path: str) -> bool:
    """Return whether a file begins like an image in a supported format. Raises SourceError as Tree.open does."""
    if Entry(path, 0, "").suffix in CAMERA:
        return False
    try:
        with tree.open(path) as file:
            return bool(format_of(file.read(HEAD_BYTES)))
    except OSError:
        return False  # missing, empty on S3, or unreadable: read() returns which


def no_picture(uri: str, path: str) -> Fault:
    """Return the Fault of a file that no format reads."""
    detail = f"'{path}' is skipped: it is no page, no table of documents, and no picture of a supported format"
    return Fault(uri, "not_an_image", detail)


def _claim(tree: Tree, files: FileTable, entry: Entry) -> Unit:
    """Take an image file with its caption and metadata files, and build the unit."""
    beside = [found for path in _beside(entry.path) if (found := files.get(path)) and found.suffix in BESIDE]
    files.take(entry.path, *(each.path for each in beside))
    etag = text_id(entry.etag, *(each.etag for each in beside)) if beside else entry.etag
    return Unit(tree.uri(entry.path), entry.size, etag, ImageFolder.name)


def _document(tree: Tree, path: str) -> Iterator[Document | Fault]:
    """Yield an image's document, and a Fault for a caption or metadata file that is not text."""
    data, caption_data, said_data = tree.read_many([path, *_beside(path)])
    # Both files are optional: most images have neither.
    texts: list[str] = []
    for beside, found in zip(_beside(path), (caption_data, said_data), strict=True):
        text = "" if isinstance(found, Fault) else readable(tree.uri(beside), found)
        if isinstance(text, Fault):
            yield text
        texts.append(text if isinstance(text, str) else "")
    caption: object = texts[0]
    found = document.parse_json(said_data) if texts[1] and isinstance(said_data, bytes) else {}
    said: dict[str, object] = found if isinstance(found, dict) else {"undecodable": "json"}
    caption = caption if lines(caption) else next((said[name] for name in CAPTIONS if lines(said.get(name))), "")
    yield _build(tree, path, data, said, caption)


def _build(tree: Tree, path: str, data: bytes | Fault, said: dict[str, object], caption: object) -> Document:
    """Build an image's document from its bytes, metadata ``said`` and caption: a text or a list of texts."""
    url = clean(said.get("url")) or tree.uri(path)
    picture = document.picture_of_file(tree, path, data, 0, url, document.first_text(caption))
    title = clean(said.get("title")) or posixpath.basename(posixpath.splitext(path)[0])
    return Document(tree.uri(path), title, as_storable(said), (picture, *map(Text, dict.fromkeys(lines(caption)))))


def readable(uri: str, data: bytes) -> str | Fault:
    """Return the text of a caption or metadata file, or a Fault if it is not text."""
    if format_of(data[:HEAD_BYTES]):
        return Fault(uri, "bad_encoding", "a picture with the name of a caption file; rename it to have it read")
    found = decode_text(data)
    if found.n_bad > MAX_BAD * len(found.text):
        return Fault(uri, "bad_encoding", f"{found.n_bad} characters are not {found.charset}; save it as UTF-8")
    return found.text


def _beside(path: str) -> tuple[str, str]:
    """Return the paths of an image's caption and metadata files."""
    stem = posixpath.splitext(path)[0] if _is_named(path) else path
    return stem + ".txt", stem + ".json"


def _is_named(path: str) -> bool:
    """Return whether a path has an image's suffix."""
    return Entry(path, 0, "").suffix in SUFFIXES


FORMATS = (ImageFolder(),)
