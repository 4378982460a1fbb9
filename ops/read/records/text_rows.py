"""Read rows of JSON lines, CSV and TSV one at a time; damage costs one row, or the rest of the file."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from codecs import CodecInfo
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.charset import MAX_BAD, decode_as, guessed, stream_encoding
from pairmill.ops.read.document import MOST_VALUES, exceeds_value_limit
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.places.unpack import CHUNK, Inflated, is_gzip
from pairmill.ops.read.places.zip_members import ZipMembers

PARQUET = frozenset(("parquet", "parq"))
LINES = frozenset(("jsonl", "ndjson"))
SEPARATED = {"csv": ",", "tsv": "\t"}
# A row may hold images as base64 (one of 50 MB fits), but no more than a worker can hold in four copies.
MAX_LINE = 72 * 2**20
# Rows of separated fields hold no images; a field of one character takes 60 bytes.
MAX_SEPARATED = 8 * 2**20
MAX_FIELD = 4 * 2**20

Row = tuple[str, dict[str, Any]]


def format_of(path: str) -> str:
    """Return a table's format by its file name: 'parquet', 'jsonl', 'csv', 'tsv', or ''; .gz and .zip do not count."""
    suffix = path.lower().rpartition(".")[2]
    if suffix in PARQUET:
        return "parquet"
    suffix = path.lower().removesuffix(".gz").removesuffix(".zip").rpartition(".")[2]
    return "jsonl" if suffix in LINES else suffix if suffix in SEPARATED else ""


def text_rows(tree: Tree, path: str, start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
    """Yield the rows that begin in bytes [start, end) of a JSONL file; ``end`` None means the end of the file.

    CSV, TSV and compressed files are always read whole.

    Raises:
        FileNotFoundError: There is no such file.
        zip_members.DAMAGED: One of these, if nothing more can be read.
    """
    with ExitStack() as stack:
        file = stack.enter_context(tree.open(path))
        inflated: Inflated | None = None
        if is_gzip(file):
            inflated = Inflated(file, uri)
            file = io.BufferedReader(inflated, CHUNK)
        elif path.lower().endswith(".zip"):
            file = stack.enter_context(_only_member(file, uri))
        elif not isinstance(file, io.BufferedReader):
            file = io.BufferedReader(file, CHUNK)  # pyright: ignore[reportArgumentType]  # s3fs cannot bound a line
        format = format_of(path)
        yield from _lines(file, start, end, uri) if format == "jsonl" else _separated(file, SEPARATED[format], uri)
        if inflated and inflated.fault:
            yield inflated.fault


def _only_member(file: IO[bytes], uri: str) -> IO[bytes]:
    """Open the one table in a zip. Raises BadZipFile if there is not exactly one, or the zip's directory is lost."""
    members = ZipMembers(file, uri)
    names = [name for name in members.found if format_of(name) in ("jsonl", "csv", "tsv")]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"expected one table inside, found {len(names)}")
    place = members.found[names[0]]
    if not isinstance(place, zipfile.ZipInfo):
        raise zipfile.BadZipFile("its directory is lost")
    return zipfile.ZipFile(file).open(place)


def _lines(file: IO[bytes], start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
    """Yield the JSON lines that begin in [start, end); a line that begins earlier belongs to the range before."""
    at = start
    if start:
        file.seek(start - 1)
        at = start - 1 + _skip_line(file)
    while end is None or at < end:
        line = file.readline(MAX_LINE)
        if not line:
            return
        item = f"{uri}#byte={at}"
        at += len(line)
        if len(line) == MAX_LINE and not line.endswith(b"\n"):
            del line
            at += _skip_line(file)
            yield Fault(item, "too_large", f"a line of over {MAX_LINE} bytes")
        elif line.strip(b" \t\r\n\0\xef\xbb\xbf"):
            yield _line(item, line)


def _skip_line(file: IO[bytes]) -> int:
    """Read to the end of the line; return the number of bytes skipped."""
    skipped = 0
    while piece := file.readline(CHUNK):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _line(item: str, line: bytes) -> Row | Fault:
    """Parse one JSON line; return a Fault if it is invalid or holds too many values."""
    if exceeds_value_limit(line):
        return Fault(item, "too_large", f"a line of {len(line)} bytes that holds over {MOST_VALUES} values")
    try:
        row = json.loads(_text_of(line), parse_constant=lambda _: None)
    except UnicodeError as error:
        return Fault(item, "bad_encoding", f"the line is no text: {in_words(error)}")
    except (ValueError, RecursionError) as error:
        return Fault(item, "bad_record", f"the line is not JSON: {in_words(error)}")
    return (item, row) if isinstance(row, dict) else Fault(item, "bad_record", f"expected an object, found {row!r:.40}")


def _separated(file: IO[bytes], separator: str, uri: str) -> Iterator[Row | Fault]:
    """Yield the rows of a CSV or TSV file; the first row names the columns."""
    csv.field_size_limit(MAX_FIELD)
    head = file.peek(CHUNK)  # type: ignore[attr-defined]
    codec = None if head.isascii() else guessed(head)
    # Decode bytes that are not UTF-8 to lone surrogates: each such row is decoded again, by the guess of its table.
    errors = "replace" if (encoding := stream_encoding(head)).startswith("utf-16") else "surrogateescape"
    lines = _Lines(io.TextIOWrapper(file, encoding, errors=errors, newline=""))
    reader = csv.reader(lines, delimiter=separator)
    names: list[str] | None = None
    place = -1
    while True:
        item = f"{uri}#row={place}"
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield Fault(item, "bad_record", f"no {separator!r}-separated row: {in_words(error)}")
            place += 1
            continue
        except _TooLong:
            yield Fault(item, "too_large", f"a row of over {MAX_SEPARATED} characters; the rest is not read")
            return
        lines.in_row = 0
        if fields is None:
            return
        if names is None:
            names = _decoded(fields, codec) or fields
        elif fields:
            yield _fields(item, names, fields, codec)
        place += bool(fields)


class _TooLong(Exception):
    """Raised for a row that does not end within MAX_SEPARATED characters."""


class _Lines:
    """Iterate over lines; raise _TooLong after MAX_SEPARATED characters of a row. The caller resets ``in_row``."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._file = file
        self.in_row = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = self._file.readline(MAX_SEPARATED)
        if not line:
            raise StopIteration
        self.in_row += len(line)
        if self.in_row >= MAX_SEPARATED:
            raise _TooLong
        return line


def _fields(item: str, names: list[str], fields: list[str], codec: CodecInfo | None) -> Row | Fault:
    """Build a row from its fields; return a Fault if their number differs or they are no text."""
    if len(fields) != len(names):
        return Fault(item, "bad_record", f"{len(fields)} fields under {len(names)} columns")
    texts = _decoded(fields, codec)
    return (item, dict(zip(names, texts, strict=True))) if texts else Fault(item, "bad_encoding", "the row is no text")


def _decoded(fields: list[str], codec: CodecInfo | None) -> list[str]:
    """Decode a row that is not UTF-8 by ``codec``, None to guess it from the row; return [] if it is no text."""
    if not any("\udc80" <= letter <= "\udcff" for field in fields if not field.isascii() for letter in field):
        return fields
    raw = [field.encode("utf-8", "surrogateescape") for field in fields]
    found = [decode_as(each, codec or guessed(b"\t".join(raw))) for each in raw]
    n_bad, n_letters = sum(each.n_bad for each in found), sum(len(each.text) for each in found)
    return [each.text for each in found] if n_bad <= MAX_BAD * n_letters else []


def _text_of(line: bytes) -> str:
    """Decode a JSON line: by UTF-8, as JSON asks, else by its letters. Raises UnicodeError if it is no text."""
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        found = decode_as(line, guessed(line))
        if found.n_bad > MAX_BAD * len(found.text):
            raise
        return found.text
