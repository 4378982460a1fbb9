"""Read WebDataset tars: members with one name up to its first dot form a sample (image, caption, JSON).

The members of a sample may be anywhere in the tar. img2dataset's sidecar ``NAME.parquet`` beside ``NAME.tar`` holds the
metadata of samples without JSON, and the addresses of images that could not be fetched. A sample whose JSON holds the
parallel lists ``texts`` and ``images`` is an interleaved document: the form in which MINT-1T (arXiv 2406.11271)
releases PDFs. An image is a member of the sample or of the archive, a page of the sample's multi-page TIFF (the n-th
name in ``images`` is the n-th page, as ``image_metadata`` counts), or a web address.
"""

import io
import posixpath
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageSequence

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault, in_words
from pairmill.ops.image.header import HOSTILE, opened
from pairmill.ops.image.pixels import is_inverted, rgb
from pairmill.ops.read import document
from pairmill.ops.read.document import Document, Picture, Text, Unit, as_storable, clean, lines
from pairmill.ops.read.formats.html_folder import SUFFIXES as PAGE_SUFFIXES
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.formats.image_folder import readable
from pairmill.ops.read.page.links import NOT_FETCHED, resolve
from pairmill.ops.read.places.archive import ArchiveTree, archive, is_tar_name, peek
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import DOCUMENT_BYTES, OneDocument, Tree
from pairmill.ops.read.records import tables

CAPTIONS = ("txt", "text", "caption", "cap")
# Keys of the caption in a sample's JSON or sidecar row, best first.
CAPTION_NAMES = ("caption", "text", "alt", "alt_text")
# A sidecar of img2dataset has 10,000 rows; a far larger table is not a sidecar and would fill the memory.
MAX_SIDECAR_ROWS = 500_000
MAX_SIDECAR_BYTES = 64 * 2**20
TIFF = ("tiff", "tif")
MAX_PAGE_PIXELS = 100_000_000
# Modes that a PNG holds as they are; Pillow inverts WhiteIsZero of these.
PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
Sample = dict[str, str]


class WebDataset:
    """Format for WebDataset tars, one unit each; a unit's etag also covers img2dataset's sidecar file."""

    name = "webdataset"
    turn = 30
    version = 1
    suffixes: frozenset[str] = frozenset(("tar", "tgz", "gz"))
    expects = ".tar(.gz) shards of samples such as 00001.jpg, 00001.txt, 00001.json"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim tars of samples, each with its sidecar and statistics file."""
        for entry in files.of(self.suffixes):
            if _is_ours(tree, entry):
                beside = [found for path in _beside(entry.path) if (found := files.get(path))]
                etag = text_id(entry.etag, *(each.etag for each in beside)) if beside else entry.etag
                files.take(entry.path, *(each.path for each in beside))
                yield Unit(tree.uri(entry.path), entry.size, etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one tar, and a Fault for each sample that cannot be read."""
        path = tree.path_of(unit.uri)
        with archive(tree, path) as packed:
            yield from _documents(packed, _sidecar(tree, _beside(path)[0]))


def _is_ours(tree: Tree, entry: Entry) -> bool:
    """Return whether a tar has images, captions or JSON, and no pages; a damaged tar counts too."""
    if not is_tar_name(entry.path):
        return False
    suffixes = {Entry(name, 0, "").suffix for name in peek(tree, entry)}
    # A tar without a readable member is damaged from its start: read() returns the fault.
    return not suffixes or (bool(suffixes & (PICTURE_SUFFIXES | {"json", *CAPTIONS})) and not suffixes & PAGE_SUFFIXES)


def _beside(path: str) -> tuple[str, str]:
    """Return the paths of a tar's sidecar and of its statistics file."""
    stem = path.removesuffix(".gz").removesuffix(".tgz").removesuffix(".tar")
    return stem + ".parquet", stem + "_stats.json"


def _sidecar(tree: Tree, path: str) -> dict[str, dict[str, Any]] | Fault:
    """Read the sidecar's rows by key; return {} if there is none, and a Fault if it cannot be used."""
    if not tree.exists(path):
        return {}
    try:
        with tree.open(path) as file:
            table = pq.ParquetFile(file)
            if "key" not in table.schema_arrow.names or table.metadata.num_rows > MAX_SIDECAR_ROWS:
                return Fault(tree.uri(path), "bad_record", "no sidecar: expected a column 'key' and one row a sample")
            found: dict[str, dict[str, Any]] = {}
            n_bytes = 0
            for each in (b for g in range(table.num_row_groups) for b in tables.batches(file, tree.uri(path), g)):
                n_bytes += 0 if isinstance(each, Fault) else each.rows.nbytes
                if isinstance(each, Fault) or n_bytes > MAX_SIDECAR_BYTES:
                    return Fault(tree.uri(path), "too_large", f"a sidecar of over {MAX_SIDECAR_BYTES} bytes")
                found |= {str(row["key"]): row for row in each.rows.to_pylist()}
            return found
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        return Fault(tree.uri(path), "bad_record", f"the sidecar cannot be read as Parquet: {in_words(error)}")


def _documents(packed: ArchiveTree, sidecar: dict[str, dict[str, Any]] | Fault) -> Iterator[Document | Fault]:
    """Yield the samples of an open tar, then the sidecar rows without a sample."""
    entries, faults = packed.members()
    yield from faults
    if isinstance(sidecar, Fault):
        yield sidecar
        sidecar = {}
    samples: dict[str, Sample] = {}
    for entry in entries:
        folder, name = posixpath.split(entry.path)
        stem, _, extension = name.partition(".")
        sample = samples.setdefault(posixpath.join(folder, stem), {})
        if (first := sample.setdefault(extension.lower(), entry.path)) != entry.path:
            detail = f"a second member '.{extension}' of its sample; {first} counts"
            yield Fault(packed.uri(entry.path), "bad_record", detail)
    unread: dict[str, list[str]] = defaultdict(list)
    for key, sample in (part for whole in samples.items() for part in _parts(*whole)):
        yield from _sample(OneDocument(packed), key, sample, sidecar.pop(posixpath.basename(key), {}))
        for extension, path in sample.items():
            if not _role(extension) and any(map(_role, sample)):
                unread[extension].append(path)
    for extension, paths in unread.items():
        detail = f"{len(paths):,} members '.{extension}' ({paths[0]}, …) are skipped: no picture, caption or JSON"
        yield Fault(packed.uri(f"*.{extension}"), "not_an_image", detail)
    for key, row in sidecar.items():
        yield _build_link(packed.uri(key), row)


def _role(extension: str) -> str:
    """Return 'picture', 'caption' or 'json' by the last part of a member's extension, '' for any other member."""
    last = extension.rpartition(".")[2]
    return "picture" if last in PICTURE_SUFFIXES else "caption" if last in CAPTIONS else last if last == "json" else ""


def _parts(key: str, sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Divide the members that share a name up to its first dot, which webdataset and `datasets` call one sample.

    ``s0.image.jpg`` and ``s0.caption.txt`` are one. ``IMG_1.2.jpg``, ``IMG_1.2.txt``, ``IMG_1.3.jpg`` and
    ``IMG_1.3.txt`` are two, with a dot in their names: each picture has a caption or JSON of the same name, as
    img2dataset pairs its files. They are one all the same if a caption would be without a picture.
    """
    roles: dict[str, set[str]] = defaultdict(set)
    for extension in sample:
        roles[extension.rpartition(".")[0]].add(_role(extension))
    paired = [stem for stem, found in roles.items() if stem and "picture" in found and found & {"caption", "json"}]
    others = set().union(*(found for stem, found in roles.items() if stem not in paired))
    if not paired or others & {"caption", "json"} or (len(paired) == 1 and others):
        yield key, sample
        return
    for stem in paired:
        named = {name: path for name, path in sample.items() if name.rpartition(".")[0] == stem}
        yield f"{key}.{stem}", {name.rpartition(".")[2]: path for name, path in named.items()}
    if left := {name: path for name, path in sample.items() if name.rpartition(".")[0] not in paired}:
        yield key, left


def _sample(packed: OneDocument, key: str, sample: Sample, row: dict[str, Any]) -> Iterator[Document | Fault]:
    """Yield a sample's document, and a Fault for each caption that is not text."""
    uri = packed.uri(key)
    about = row | _json(packed, sample)
    if isinstance(about.get("texts"), list) and isinstance(about.get("images"), list):
        yield _build_interleaved(packed, uri, sample, about)
        return
    said: list[object] = []
    captions = [extension for extension in sample if _role(extension) == "caption"]
    for extension in sorted(captions, key=lambda each: ("." in each, CAPTIONS.index(each.rpartition(".")[2]))):
        data = packed.read(sample[extension])
        text = data if isinstance(data, Fault) else readable(packed.uri(sample[extension]), data)
        if not isinstance(text, Fault):
            said.append(text)
        elif text.reason != "empty":
            yield text
    yield _document(packed, uri, sample, about, [*said, *(about.get(name) for name in CAPTION_NAMES)])


def _document(
    packed: OneDocument, uri: str, sample: Sample, about: dict[str, Any], said: list[object]
) -> Document | Fault:
    """Build the document of a sample's images and captions; ``said`` are texts or lists of texts, best first."""
    captions = list(dict.fromkeys(line for each in said for line in lines(each)))
    alt = document.first_text(*said)
    pictures = [path for extension, path in sample.items() if extension.rpartition(".")[2] in PICTURE_SUFFIXES]
    items: list[Picture | Text] = []
    for path in pictures:
        url = (clean(about.get("url")) if len(pictures) == 1 else "") or packed.uri(path)
        items.append(document.picture_of_file(packed, path, packed.read(path), len(items), url, alt))
    if not pictures and clean(about.get("url")):
        return _build_link(uri, about)
    items += [Text(caption) for caption in captions]
    if not items:
        return Fault(uri, "bad_record", f"a sample without picture and caption; it has {sorted(sample)}")
    return Document(uri, clean(about.get("title")), as_storable(about), tuple(items))


def _json(packed: OneDocument, sample: Sample) -> dict[str, Any]:
    """Parse a sample's JSON members; return {} if there are none, and {"undecodable": "json"} if one is invalid."""
    about: dict[str, Any] = {}
    for extension in sorted((each for each in sample if _role(each) == "json"), key=len, reverse=True):
        data = packed.read(sample[extension])
        found = {} if isinstance(data, Fault) else document.parse_json(data)
        about |= found if isinstance(found, dict) else {"undecodable": "json"} if data else {}
    return about


def _build_link(uri: str, row: dict[str, Any]) -> Document:
    """Build the document of a sample that has only an address: a later fetch completes it."""
    said = next((row[name] for name in CAPTION_NAMES if lines(row.get(name))), "")
    caption = clean(said[0]) if isinstance(said, list) else clean(said)
    url = clean(row.get("url")) or uri
    why = clean(row.get("error_message")) or clean(row.get("status"))
    fault = Fault(url, "missing", f"{NOT_FETCHED} ({why})" if why else NOT_FETCHED)
    picture = Picture(0, url, caption, b"", fault)
    return Document(uri, "", as_storable(row), (picture, *map(Text, lines(said))))


def _build_interleaved(packed: Tree, uri: str, sample: Sample, about: dict[str, Any]) -> Document | Fault:
    """Build the document of the lists ``texts`` and ``images`` in ``about``; a Fault if they differ or are empty."""
    texts, images = about["texts"], about["images"]
    if len(texts) != len(images):
        return Fault(uri, "bad_record", f"the lists differ in length: {len(images)} images, {len(texts)} texts")
    names = [image for image in images if image is not None]
    pages = _pages(packed, sample, len(names))
    said = about.get("image_metadata")
    details = said if isinstance(said, list) and len(said) == len(names) else [{}] * len(names)
    items: list[Picture | Text] = []
    position = 0
    for text, image in zip(texts, images, strict=True):
        if image is not None:
            page = pages[position] if position < len(pages) else None
            items.append(_build_picture(packed, uri, sample, position, str(image), page, details[position]))
            position += 1
        if clean(text):
            items.append(Text(clean(text)))
    if not items:
        return Fault(uri, "bad_record", "the sample holds neither a text nor an image")
    kept = {name: value for name, value in about.items() if name not in ("texts", "images")}
    return Document(uri, clean(about.get("title")), as_storable(kept), tuple(items))


def _build_picture(
    packed: Tree, uri: str, sample: Sample, position: int, name: str, page: bytes | Fault | None, said: Any
) -> Picture:
    """Build one image of a sample from a TIFF page, a member of the archive, embedded bytes or a web address."""
    alt = clean(said.get("alt_text")) if isinstance(said, dict) else ""
    if isinstance(page, bytes):
        return Picture(position, f"{uri}.{clean(name) or position}", alt, page)
    if path := _member(packed, sample, name):
        return document.picture_of_file(packed, path, packed.read(path), position, packed.uri(path), alt)
    link = resolve(packed, posixpath.basename(uri), name)
    fault = page or link.fault
    if fault is None and not link.data:
        fault = Fault(link.url, "missing", "neither a member, a page of the TIFF nor an address")
    return Picture(position, link.url, alt, link.data if fault is None else b"", fault)


def _member(packed: Tree, sample: Sample, name: str) -> str:
    """Return the path of the member that an image's name means, '' if there is none."""
    if packed.exists(name):
        return name
    return next((path for extension, path in sample.items() if posixpath.splitext(extension)[0] == name), "")


def _pages(packed: Tree, sample: Sample, n: int) -> list[bytes | Fault]:
    """Split the sample's TIFF into its first ``n`` pages, each a lossless PNG; a one-page TIFF stays unchanged."""
    path = next((sample[extension] for extension in TIFF if extension in sample), "")
    data = packed.read(path) if path else b""
    if isinstance(data, Fault) or not data:
        return [data] * n if isinstance(data, Fault) else []
    found: list[bytes | Fault] = []
    try:
        with opened(data, "tiff") as image:
            if n == 1 and getattr(image, "n_frames", 1) == 1:
                return [data]
            for page in ImageSequence.Iterator(image):
                if len(found) == n:
                    break
                if sum(len(each) for each in found if isinstance(each, bytes)) > DOCUMENT_BYTES:
                    raise MemoryError(f"its pages hold over {DOCUMENT_BYTES} bytes")
                found.append(_png(page, packed.uri(path)))
    except HOSTILE as error:
        fault = Fault(packed.uri(path), "undecodable", f"the TIFF cannot be read: {in_words(error)}")
        found += [fault] * (n - len(found))
    return found


def _png(page: Image.Image, uri: str) -> bytes | Fault:
    """Encode a page as PNG, or return a Fault for a page of too many pixels."""
    if page.width * page.height > MAX_PAGE_PIXELS:
        return Fault(uri, "bomb", f"a page of {page.width} x {page.height} pixels")
    out = io.BytesIO()
    is_plain = page.mode in PNG_MODES or (page.mode == "I;16" and not is_inverted(page))
    shown = page if is_plain else Image.fromarray(rgb(page))
    shown.save(out, "PNG", compress_level=1)
    return out.getvalue()


FORMATS = (WebDataset(),)
