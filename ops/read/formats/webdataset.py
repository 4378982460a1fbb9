"""Read WebDataset tars: members of one stem are a sample (picture, caption, JSON), as img2dataset writes them.

The members of a sample may stand anywhere in the tar. img2dataset's sidecar ``NAME.parquet`` beside ``NAME.tar`` gives
the metadata of samples without JSON and the addresses of the pictures that could not be fetched. A sample whose JSON
holds the lists ``texts`` and ``images`` is an interleaved document (see interleaved_sample).
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Picture, Text, Unit, picture_of_file
from pairmill.ops.read.document_metadata import as_storable, clean, parsed
from pairmill.ops.read.formats import interleaved_sample
from pairmill.ops.read.formats.html_folder import SUFFIXES as PAGE_SUFFIXES
from pairmill.ops.read.formats.image_folder import SUFFIXES as PICTURE_SUFFIXES
from pairmill.ops.read.formats.image_folder import readable
from pairmill.ops.read.page.links import NOT_FETCHED
from pairmill.ops.read.places.archive import ArchiveTree, archive, is_tar_name, peek
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.one_document import OneDocument
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.records import tables

CAPTIONS = ("txt", "text", "caption", "cap")
# Names of the caption in a sample's JSON or sidecar row, best first.
CAPTION_NAMES = ("caption", "text", "alt", "alt_text")
# A sidecar of img2dataset has 10,000 rows; one far beyond is no sidecar and would fill the memory.
MAX_SIDECAR_ROWS = 500_000
MAX_SIDECAR_BYTES = 64 * 2**20
Sample = dict[str, str]


class WebDataset:
    """Read one tar as a unit; its etag covers the sidecar."""

    name = "webdataset"
    turn = 30
    version = 1
    suffixes: frozenset[str] = frozenset(("tar", "tgz", "gz"))
    expects = ".tar(.gz) shards of samples such as 00001.jpg, 00001.txt, 00001.json"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        for entry in files.of(self.suffixes):
            if _is_ours(tree, entry):
                beside = [found for path in _beside(entry.path) if (found := files.get(path))]
                etag = text_id(entry.etag, *(each.etag for each in beside)) if beside else entry.etag
                files.take(entry.path, *(each.path for each in beside))
                yield Unit(tree.uri(entry.path), entry.size, etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        path = unit.uri.removeprefix(tree.uri(""))
        try:
            with archive(tree, path) as packed:
                yield from _documents(packed, _sidecar(tree, _beside(path)[0]))
        except FileNotFoundError:
            yield Fault(unit.uri, "missing", "no such file")


def _is_ours(tree: Tree, entry: Entry) -> bool:
    if not is_tar_name(entry.path):
        return False
    suffixes = {Entry(name, 0, "").suffix for name in peek(tree, entry)}
    # A tar that shows no member is damaged from its start: read() tells how.
    return not suffixes or (bool(suffixes & (PICTURE_SUFFIXES | {"json", *CAPTIONS})) and not suffixes & PAGE_SUFFIXES)


def _beside(path: str) -> tuple[str, str]:
    stem = path.removesuffix(".gz").removesuffix(".tgz").removesuffix(".tar")
    return stem + ".parquet", stem + "_stats.json"


def _sidecar(tree: Tree, path: str) -> dict[str, dict[str, Any]] | Fault:
    """Read the sidecar's rows by key; {} when there is none, a Fault when it cannot be used."""
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
        return Fault(tree.uri(path), "bad_record", f"the sidecar cannot be read as Parquet: {error}")


def _documents(packed: ArchiveTree, sidecar: dict[str, dict[str, Any]] | Fault) -> Iterator[Document | Fault]:
    entries, faults = packed.members()
    yield from faults
    if isinstance(sidecar, Fault):
        yield sidecar
        sidecar = {}
    samples: dict[str, Sample] = {}
    for entry in entries:
        folder, name = posixpath.split(entry.path)
        stem, _, extension = name.partition(".")
        samples.setdefault(posixpath.join(folder, stem), {})[extension.lower()] = entry.path
    for key, sample in samples.items():
        yield from _sample(OneDocument(packed), key, sample, sidecar.pop(posixpath.basename(key), {}))
    for key, row in sidecar.items():
        yield _not_fetched(packed.uri(key), row)


def _sample(packed: OneDocument, key: str, sample: Sample, row: dict[str, Any]) -> Iterator[Document | Fault]:
    uri = packed.uri(key)
    about = row | _json(packed, sample)
    if isinstance(about.get("texts"), list) and isinstance(about.get("images"), list):
        yield interleaved_sample.document(packed, uri, sample, about)
        return
    texts = _texts(packed, sample)
    yield from (text for text in texts if isinstance(text, Fault))
    said = [text for text in texts if isinstance(text, str)]
    yield _document(packed, uri, sample, about, [*said, *(clean(about.get(name)) for name in CAPTION_NAMES)])


def _document(
    packed: OneDocument, uri: str, sample: Sample, about: dict[str, Any], said: list[str]
) -> Document | Fault:
    """Make the document of a sample's pictures and distinct captions: of ``said``, '' for none, the first is first."""
    captions = [text for text in dict.fromkeys(said) if text]
    pictures = [path for extension, path in sample.items() if extension.rpartition(".")[2] in PICTURE_SUFFIXES]
    items: list[Picture | Text] = []
    for path in pictures:
        url = clean(about.get("url")) if len(pictures) == 1 else ""
        alt = captions[0] if captions else ""
        items.append(picture_of_file(packed, path, packed.read(path), len(items), url or packed.uri(path), alt))
    if not pictures and clean(about.get("url")):
        return _not_fetched(uri, about)
    items += [Text(caption) for caption in captions]
    if not items:
        return Fault(uri, "bad_record", f"a sample without picture and caption; it has {sorted(sample)}")
    return Document(uri, clean(about.get("title")), as_storable(about), tuple(items))


def _json(packed: OneDocument, sample: Sample) -> dict[str, Any]:
    data = packed.read(sample["json"]) if "json" in sample else b""
    found = {} if isinstance(data, Fault) else parsed(data)
    return found if isinstance(found, dict) else {"undecodable": "json"} if data else {}


def _texts(packed: OneDocument, sample: Sample) -> list[str | Fault]:
    """Read the captions among a sample's members; a Fault for one that is no text."""
    paths = [sample[extension] for extension in CAPTIONS if extension in sample]
    found = [(path, packed.read(path)) for path in paths]
    texts = [readable(packed.uri(path), data) for path, data in found if not isinstance(data, Fault)]
    return [text if isinstance(text, Fault) else clean(text) for text in texts]


def _not_fetched(uri: str, row: dict[str, Any]) -> Document:
    """Make the document of a sample of which only the address is left: it is complete once that is fetched."""
    caption = next((clean(row.get(name)) for name in CAPTION_NAMES if clean(row.get(name))), "")
    url = clean(row.get("url")) or uri
    said = clean(row.get("error_message")) or clean(row.get("status"))
    fault = Fault(url, "missing", f"{NOT_FETCHED} ({said})" if said else NOT_FETCHED)
    picture = Picture(0, url, caption, b"", fault)
    return Document(uri, "", as_storable(row), (picture, Text(caption)) if caption else (picture,))


FORMAT = WebDataset()
