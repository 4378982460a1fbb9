"""Rows of Parquet, CSV, TSV and JSON lines, one at a time and in bounded memory, whatever a row is about.

A unit is a row group, a range of a JSONL file's bytes, or a whole CSV or packed file (a quoted CSV field may hold line
ends, so that no byte tells where a row begins; a packed file is read from its start). A row's uri ends in ``#row=N``,
or for JSON lines in ``#byte=N``, the place in the unpacked file.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import lru_cache
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ops.fault import Fault
from ops.identity import text_id
from ops.read.document import Unit
from ops.read.tree import Entry, Tree
from ops.read.unpack import CHUNK, Inflated, is_gzip
from ops.read.zip_members import DAMAGED, ZipMembers

PARQUET = frozenset(("parquet", "parq"))
LINES = frozenset(("jsonl", "ndjson"))
SEPARATED = {"csv": ",", "tsv": "\t"}
SUFFIXES = PARQUET | LINES | frozenset(SEPARATED) | {"gz", "zip"}
# A range is read by one worker; the row that begins in it is its own to the row's end.
RANGE_BYTES = 64 * 2**20
# One row may carry pictures as base64, but no more than a worker can hold.
MAX_LINE = 128 * 2**20
MAX_FIELD = 4 * 2**20
# Rows of a Parquet file held at once: with pictures inside them, or without.
ROWS_AT_ONCE, SMALL_ROWS_AT_ONCE = 16, 1024
# pyarrow raises these on damaged files, beside its own.
BAD_PARQUET = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, LookupError)
AT_ONCE = 16

Row = tuple[str, dict[str, Any]]


class Header(NamedTuple):
    """``columns``: kind by name ('text', 'texts', 'binary', 'held', 'helds', 'list', 'other'); held: struct with bytes.

    ``groups`` are the sizes of the row groups in bytes, () for other than Parquet.
    """

    columns: dict[str, str]
    groups: tuple[int, ...] = ()


def format_of(path: str) -> str:
    """'parquet', 'jsonl', 'csv', 'tsv' or '', by name; .gz and .zip around the last three do not count."""
    name = path.lower()
    for packing in (".gz", ".zip"):
        name = name.removesuffix(packing)
    suffix = name.rpartition(".")[2]
    if suffix in PARQUET:
        return "parquet" if name == path.lower() else ""
    return "jsonl" if suffix in LINES else suffix if suffix in SEPARATED else ""


@lru_cache(maxsize=65_536)
def header(tree: Tree, entry: Entry) -> Header | None:
    """The columns of a table, None for what is none or cannot be read. Read once a listing."""
    format = format_of(entry.path)
    if not format:
        return None
    try:
        if format == "parquet":
            with tree.open(entry.path) as file:
                found = pq.ParquetFile(file)
                groups = found.metadata
                sizes = tuple(groups.row_group(index).total_byte_size for index in range(groups.num_row_groups))
                return Header(kinds(found.schema_arrow), sizes)
        for found in _text_rows(tree, entry.path, 0, None, ""):
            if not isinstance(found, Fault):
                return Header({name: _json_kind(value) for name, value in found[1].items()})
    except (*BAD_PARQUET, *DAMAGED):
        return None
    return None


def shaped(tree: Tree, entries: list[Entry], fits: Callable[[dict[str, str]], bool]) -> list[Entry]:
    """The tables among the entries whose columns ``fits`` says yes to. Many at a time: on S3 a footer is two reads."""
    tables = [entry for entry in entries if format_of(entry.path)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        headers = list(pool.map(lambda entry: header(tree, entry), tables))
    return [entry for entry, found in zip(tables, headers, strict=True) if found and fits(found.columns)]


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Kind of each column, as Header names them."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: pa.DataType) -> str:
    types = pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "binary"
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return "held"
    if types.is_list(kind) or types.is_large_list(kind):
        return {"text": "texts", "held": "helds"}.get(_kind(kind.value_type), "list")
    return "other"


def _json_kind(value: Any) -> str:
    if isinstance(value, list):
        return "texts" if value and all(isinstance(each, str) for each in value) else "list"
    return "text" if isinstance(value, str) else "other"


def units(tree: Tree, entry: Entry, format: str) -> list[Unit]:
    """The units of one table for the reader called ``format``."""
    uri, found = tree.uri(entry.path), header(tree, entry)
    if found and found.groups:
        return [
            Unit(f"{uri}#row-group={index}", size, text_id(entry.etag, str(index)), format)
            for index, size in enumerate(found.groups)
        ]
    if entry.suffix not in LINES or entry.size <= RANGE_BYTES:
        return [Unit(uri, entry.size, entry.etag, format)]
    starts = range(0, entry.size, RANGE_BYTES)
    ends = [min(start + RANGE_BYTES, entry.size) for start in starts]
    return [
        Unit(f"{uri}#bytes={start}-{end}", end - start, text_id(entry.etag, str(start)), format)
        for start, end in zip(starts, ends, strict=True)
    ]


def path_of(tree: Tree, unit: Unit) -> str:
    """Path of the file that a unit is a part of."""
    uri = unit.uri
    for mark in ("#row-group=", "#bytes="):
        uri = uri.rpartition(mark)[0] or uri
    return uri.removeprefix(tree.uri(""))


def rows(tree: Tree, unit: Unit) -> Iterator[Row | Fault]:
    """(uri, row) of every row of the unit in order; a Fault for a row that cannot be read, and for a damaged rest."""
    path = path_of(tree, unit)
    try:
        if format_of(path) == "parquet":
            yield from _parquet_rows(tree, path, int(unit.uri.rpartition("#row-group=")[2] or 0))
        else:
            start, _, end = unit.uri.rpartition("#bytes=")[2].partition("-") if "#bytes=" in unit.uri else ("0", "", "")
            yield from _text_rows(tree, path, int(start), int(end) if end else None, tree.uri(path))
    except FileNotFoundError:
        yield Fault(unit.uri, "missing", "no such file")
    except UnicodeDecodeError as error:
        yield Fault(unit.uri, "bad_encoding", f"not UTF-8: {error}")
    except (*BAD_PARQUET, *DAMAGED) as error:
        yield Fault(unit.uri, "bad_record", f"the rest of the table is not readable: {error}")


def _parquet_rows(tree: Tree, path: str, group: int) -> Iterator[Row | Fault]:
    uri = tree.uri(path)
    with tree.open(path) as file:
        table = pq.ParquetFile(file, buffer_size=2**20)
        first = sum(table.metadata.row_group(index).num_rows for index in range(group))
        large = any(kind in ("binary", "held", "helds") for kind in kinds(table.schema_arrow).values())
        size = ROWS_AT_ONCE if large else SMALL_ROWS_AT_ONCE
        for batch in table.iter_batches(batch_size=size, row_groups=[group]):
            try:
                found = batch.to_pylist()
                yield from ((f"{uri}#row={first + place}", row) for place, row in enumerate(found))
            except (UnicodeDecodeError, pa.ArrowException, ValueError, OverflowError):
                yield from _one_by_one(batch, uri, first)
            first += batch.num_rows


def _one_by_one(batch: pa.RecordBatch, uri: str, first: int) -> Iterator[Row | Fault]:
    """Rows of a batch in which one holds what Python cannot: bad UTF-8, a date beyond the year 9999."""
    for place in range(batch.num_rows):
        item = f"{uri}#row={first + place}"
        try:
            yield item, {name: batch.column(name)[place].as_py() for name in batch.schema.names}
        except UnicodeDecodeError as error:
            yield Fault(item, "bad_encoding", f"a text is not UTF-8: {error}")
        except (pa.ArrowException, ValueError, OverflowError) as error:
            yield Fault(item, "bad_record", f"a value cannot be read: {error}")


def _text_rows(tree: Tree, path: str, start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
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
    """JSON lines that begin in [start, end): a line that reaches in from before belongs to the range before."""
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
    lines = io.TextIOWrapper(file, "utf-8-sig", errors="surrogateescape", newline="")
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
        if fields is None:
            return
        if names is None:
            names = fields
        elif fields:
            yield _fields(item, names, fields)
        place += bool(fields)


def _fields(item: str, names: list[str], fields: list[str]) -> Row | Fault:
    if len(fields) != len(names):
        return Fault(item, "bad_record", f"{len(fields)} fields under {len(names)} columns")
    if any("\udc80" <= letter <= "\udcff" for field in fields if not field.isascii() for letter in field):
        return Fault(item, "bad_encoding", "the row is not UTF-8")
    return item, dict(zip(names, fields, strict=True))
