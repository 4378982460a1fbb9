"""Read rows of JSON lines, CSV and TSV one at a time; damage costs one row, or the rest of the file."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from pairmill.ops.fault import Fault
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
        UnicodeDecodeError: The text is not UTF-8.
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
        row = json.loads(line.decode("utf-8-sig"), parse_constant=lambda _: None)
    except UnicodeDecodeError as error:
        return Fault(item, "bad_encoding", f"the line is not UTF-8: {error}")
    except (ValueError, RecursionError) as error:
        return Fault(item, "bad_record", f"the line is not JSON: {error}")
    return (item, row) if isinstance(row, dict) else Fault(item, "bad_record", f"expected an object, found {row!r:.40}")


def _separated(file: IO[bytes], separator: str, uri: str) -> Iterator[Row | Fault]:
    """Yield the rows of a CSV or TSV file; the first row names the columns."""
    csv.field_size_limit(MAX_FIELD)
    # Decode bad bytes to lone surrogates, so that they cost one row and not the file.
    lines = _Lines(io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline=""))
    reader = csv.reader(lines, delimiter=separator)
    names: list[str] | None = None
    place = -1
    while True:
        item = f"{uri}#row={place}"
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield Fault(item, "bad_record", f"no {separator!r}-separated row: {error}")
            place += 1
            continue
        except _TooLong:
            yield Fault(item, "too_large", f"a row of over {MAX_SEPARATED} characters; the rest is not read")
            return
        lines.in_row = 0
        if fields is None:
            return
        if names is None:
            names = fields
        elif fields:
            yield _fields(item, names, fields)
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


def _fields(item: str, names: list[str], fields: list[str]) -> Row | Fault:
    """Build a row from its fields; return a Fault if their number differs or a field is not UTF-8."""
    if len(fields) != len(names):
        return Fault(item, "bad_record", f"{len(fields)} fields under {len(names)} columns")
    if any("\udc80" <= letter <= "\udcff" for field in fields if not field.isascii() for letter in field):
        return Fault(item, "bad_encoding", "the row is not UTF-8")
    return item, dict(zip(names, fields, strict=True))
