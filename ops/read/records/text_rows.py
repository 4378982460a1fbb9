"""Read rows of JSON lines, CSV and TSV, packed or not, one at a time; damage costs a row, or the rest of the file."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any

from pairmill.ops.fault import Fault
from pairmill.ops.read.document_metadata import MOST_VALUES, exceeds_value_limit
from pairmill.ops.read.places.tree import Tree
from pairmill.ops.read.places.unpack import CHUNK, Inflated, is_gzip
from pairmill.ops.read.places.zip_members import ZipMembers

LINES = frozenset(("jsonl", "ndjson"))
SEPARATED = {"csv": ",", "tsv": "\t"}
# One row may carry pictures as base64 (one of 50 MB fits), but no more than a worker can hold in four copies.
MAX_LINE = 72 * 2**20
# A row of separated fields carries none; a field of a letter takes 60 bytes.
MAX_SEPARATED = 8 * 2**20
MAX_FIELD = 4 * 2**20

Row = tuple[str, dict[str, Any]]


def format_of(path: str) -> str:
    """Return 'jsonl', 'csv', 'tsv' or '', by name; a .gz or .zip around it does not count."""
    name = path.lower()
    for packing in (".gz", ".zip"):
        name = name.removesuffix(packing)
    suffix = name.rpartition(".")[2]
    return "jsonl" if suffix in LINES else suffix if suffix in SEPARATED else ""


def text_rows(tree: Tree, path: str, start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
    """Yield rows that begin in bytes [start, end) of a JSONL file; ``end`` None means to its end.

    Of CSV, TSV and packed files always the whole. Raises FileNotFoundError, UnicodeDecodeError, and one of
    zip_members.DAMAGED where nothing more can be read.
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
            file = io.BufferedReader(file, CHUNK)  # pyright: ignore[reportArgumentType]  # s3fs reads no bounded line
        format = format_of(path)
        yield from _lines(file, start, end, uri) if format == "jsonl" else _separated(file, SEPARATED[format], uri)
        if inflated and inflated.fault:
            yield inflated.fault


def _only_member(file: IO[bytes], uri: str) -> IO[bytes]:
    members = ZipMembers(file, uri)
    names = [name for name in members.found if format_of(name) in ("jsonl", "csv", "tsv")]
    if len(names) != 1:
        raise zipfile.BadZipFile(f"expected one table inside, found {len(names)}")
    place = members.found[names[0]]
    if not isinstance(place, zipfile.ZipInfo):
        raise zipfile.BadZipFile("its directory is lost")
    return zipfile.ZipFile(file).open(place)


def _lines(file: IO[bytes], start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
    """Yield JSON lines that begin in [start, end): a line that reaches in from before belongs to the range before."""
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
    skipped = 0
    while piece := file.readline(CHUNK):
        skipped += len(piece)
        if piece.endswith(b"\n"):
            break
    return skipped


def _line(item: str, line: bytes) -> Row | Fault:
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
    csv.field_size_limit(MAX_FIELD)
    # Bad bytes become half letters, so that they cost one row and not the file.
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
    """A row has no end within what a worker holds of it."""


class _Lines:
    """Lines of a text file, as long as a row's together stay below MAX_SEPARATED characters. Raises _TooLong else."""

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
    if len(fields) != len(names):
        return Fault(item, "bad_record", f"{len(fields)} fields under {len(names)} columns")
    if any("\udc80" <= letter <= "\udcff" for field in fields if not field.isascii() for letter in field):
        return Fault(item, "bad_encoding", "the row is not UTF-8")
    return item, dict(zip(names, fields, strict=True))
