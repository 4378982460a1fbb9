"""Read rows of JSON lines, CSV and TSV one at a time; damage costs one row, or the rest of the file."""

import csv
import io
import json
import re
import zipfile
from codecs import CodecInfo
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import IO, Any, NamedTuple

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.charset import MAX_BAD, decode_as, guess_codec, stream_encoding
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
# Lines with an odd number of quotation marks at which a row is tried to end: each costs a look at all of its lines.
MOST_ODD = 4
# Characters of a file that are looked at in vain for the end of an open mark, in some 3 s; then it is a letter at once.
MOST_IN_VAIN = 32 * 2**20
# A field in quotation marks that ends before a separator, and one that does not end; no match takes more than linear
# time. A path or web address has no white space, and a dot or a slash behind its first letter.
_QUOTED = {each: re.compile(rf'"([^"]*(?:""[^"]*)*)"[ \t]*?(?={each}|\Z)') for each in SEPARATED.values()}
_OPEN = re.compile(r'"[^"]*(?:""[^"]*)*\Z')
_LINE_END = re.compile(r"[\r\n]")
_ADDRESS = re.compile(r"[^\s./][^\s./]*[./]\S*|\.?/\S+")

Row = tuple[str, dict[str, Any]]


def format_of(path: str) -> str:
    """Return a table's format by its file name: 'parquet', 'jsonl', 'csv', 'tsv' or ''; .gz and .zip are ignored."""
    if (suffix := path.lower().rpartition(".")[2]) in PARQUET:
        return "parquet"
    suffix = path.lower().removesuffix(".gz").removesuffix(".zip").rpartition(".")[2]
    return "jsonl" if suffix in LINES else suffix if suffix in SEPARATED else ""


def text_rows(tree: Tree, path: str, start: int, end: int | None, uri: str) -> Iterator[Row | Fault]:
    """Yield the rows that begin in bytes [start, end) of a JSONL file; ``end`` None means the end of the file.

    CSV, TSV and compressed files are always read whole.

    Raises FileNotFoundError, and one of zip_members.DAMAGED if nothing more can be read.
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
        yield from _lines(file, start, end, uri) if format == "jsonl" else _read_separated(file, SEPARATED[format], uri)
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
        if not (line := file.readline(MAX_LINE)):
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
    """Parse one JSON line; return a Fault if it is invalid or has too many values."""
    if exceeds_value_limit(line):
        return Fault(item, "too_large", f"a line of {len(line)} bytes that holds over {MOST_VALUES} values")
    try:
        row = json.loads(_text_of(line), parse_constant=lambda _: None)
    except UnicodeError as error:
        return Fault(item, "bad_encoding", f"the line is no text: {in_words(error)}")
    except (ValueError, RecursionError) as error:
        return Fault(item, "bad_record", f"the line is not JSON: {in_words(error)}")
    return (item, row) if isinstance(row, dict) else Fault(item, "bad_record", f"expected an object, found {row!r:.40}")


def _read_separated(file: IO[bytes], separator: str, uri: str) -> Iterator[Row | Fault]:
    """Yield the rows of a CSV or TSV file; the first row names the columns."""
    csv.field_size_limit(MAX_FIELD)
    head = file.peek(CHUNK)  # type: ignore[attr-defined]
    codec = None if head.isascii() else guess_codec(head)
    # Decode bytes that are not UTF-8 to lone surrogates: each such row is decoded again, by the guess of its table.
    errors = "replace" if (encoding := stream_encoding(head)).startswith("utf-16") else "surrogateescape"
    lines = _Lines(io.TextIOWrapper(file, encoding, errors=errors, newline=""))
    # Asked for a second line of a row, the empty queue raises IndexError.
    one_line: deque[str] = deque()
    reader = csv.reader(iter(one_line.popleft, None), delimiter=separator, strict=True)
    names: list[str] | None = None
    place = -1
    while line := lines.read():
        item, number = f"{uri}#row={place}", lines.number
        try:
            if len(line) >= MAX_SEPARATED:
                raise _TooLong
            one_line.append(line)
            try:
                fields = next(reader)
            except (IndexError, csv.Error):  # a mark that is not closed on this line, or not before a separator
                fields = _read_quoted_row(lines, line, separator, names)
        except csv.Error as error:
            yield Fault(item, "bad_record", f"line {number}: no {separator!r}-separated row: {in_words(error)}")
            place += 1
            continue
        except _TooLong:
            yield Fault(item, "too_large", f"line {number}: over {MAX_SEPARATED} characters; the rest is not read")
            return
        if names is None:
            names = _decode(fields, codec) or fields or None
        elif fields:
            yield _fields(item, number, names, fields, codec)
        place += bool(fields)


class _TooLong(Exception):
    """Raised for a row that does not end within MAX_SEPARATED characters."""


class _Lines:
    """The lines of a file from number 1, to look ahead in; ``in_vain`` counts characters searched for a mark."""

    def __init__(self, file: io.TextIOWrapper) -> None:
        self._file = file
        self._ahead: list[str] = []
        self._at = 0
        self.number = 0
        self.in_vain = 0

    def read(self) -> str:
        """Return the next line, at most MAX_SEPARATED characters of it; '' at the end."""
        self.number += 1
        if self._at < len(self._ahead):
            self._at += 1
            return self._ahead[self._at - 1]
        self._ahead, self._at = [], 0
        return self._file.readline(MAX_SEPARATED)

    def look(self) -> Iterator[str]:
        """Yield the following lines without consuming them."""
        at = self._at
        while True:
            if at == len(self._ahead):
                self._ahead.append(self._file.readline(MAX_SEPARATED))
            if not self._ahead[at]:
                return
            yield self._ahead[at]
            at += 1


def _read_quoted_row(lines: _Lines, line: str, separator: str, names: list[str] | None) -> list[str]:
    """Parse a row whose first line is no row by the csv module's strict rules, and read its further lines.

    A mark that opens a field and that nobody closes before a separator or the end of a line is a letter. So is one that
    is closed on a later line, if the lines up to there look like rows of their own. Raises csv.Error and _TooLong.
    """
    alone = _split(line, separator)
    if max(map(len, alone.fields)) > MAX_FIELD:
        raise csv.Error(f"a field of over {MAX_FIELD} characters")
    if alone.open_at is None:
        return alone.fields
    is_row = names is None or len(alone.fields) == len(names)
    found = _read_to_closing_mark(lines, line, separator, is_row) if lines.in_vain <= MOST_IN_VAIN else None
    if found is None:
        return alone.fields
    whole, further = found
    is_other = is_row and len(whole.fields) != len(names or whole.fields)
    if is_other or max(map(len, whole.fields)) > MAX_FIELD or (is_row and _are_rows(alone, further, separator)):
        lines.in_vain += sum(map(len, further))
        return alone.fields
    for _ in further:
        lines.read()
    return whole.fields


def _read_to_closing_mark(lines: _Lines, line: str, separator: str, is_row: bool) -> "tuple[_Split, list[str]] | None":
    """Return the row that begins with ``line``, with further lines, or None. Raises _TooLong unless ``is_row``."""
    text, further, n_odd = line, list[str](), 0
    for each in lines.look():
        further.append(each)
        if len(text) + len(each) >= MAX_SEPARATED:
            if not is_row:
                raise _TooLong
            break
        text += each
        # Marks that come in pairs leave the field open, or open another one.
        n_odd += each.count('"') % 2
        if each.count('"') % 2:
            whole = _split(text, separator)
            if whole.open_at is None and not whole.is_broken:
                return whole, further
            if whole.is_broken or n_odd > MOST_ODD:
                break
    lines.in_vain += len(text)
    return None


class _Split(NamedTuple):
    """The fields of a text of one or more lines.

    ``open_at`` is the place of the field whose quotation mark is open at the end, None if there is none; ``is_broken``
    tells whether a field before it that is not in quotation marks has a line break.
    """

    fields: list[str]
    open_at: int | None
    is_broken: bool


def _split(text: str, separator: str) -> _Split:
    """Split a text at the separators outside of quoted fields; a mark that is not closed properly is a letter."""
    quoted, text = _QUOTED[separator], text.rstrip("\r\n")
    found, at = _Split([], None, False), 0
    while True:
        if match := quoted.match(text, at):
            found.fields.append(match[1].replace('""', '"'))
            at = match.end()
        else:
            if found.open_at is None and _OPEN.match(text, at):
                found = found._replace(open_at=len(found.fields))
            end = text.find(separator, at)
            end = len(text) if end < 0 else end
            found.fields.append(text[at:end])
            if found.open_at is None and _LINE_END.search(text, at, end):
                found = found._replace(is_broken=True)
            at = end
        if at >= len(text):
            return found
        at += 1


def _are_rows(first: _Split, further: list[str], separator: str) -> bool:
    """Return whether each further line has as many fields as the first, with addresses and numbers in the same ones."""
    kinds = [_kind_of(field) for field in first.fields]
    kinds[first.open_at or 0] = ""
    if not any(kinds):
        return False
    for line in further:
        fields = _split(line, separator).fields
        if len(fields) != len(kinds) or any(k and k != _kind_of(f) for k, f in zip(kinds, fields, strict=True)):
            return False
    return True


def _kind_of(field: str) -> str:
    """Return 'number', or 'address' for a path or a web address, or '' for any other text."""
    if field.isdigit():
        return "number"
    return "address" if _ADDRESS.fullmatch(field) else ""


def _fields(item: str, line: int, names: list[str], fields: list[str], codec: CodecInfo | None) -> Row | Fault:
    """Build a row from its fields; return a Fault if their number differs or they are no text."""
    if len(fields) != len(names):
        return Fault(item, "bad_record", f"line {line}: {len(fields)} fields under {len(names)} columns")
    if texts := _decode(fields, codec):
        return item, dict(zip(names, texts, strict=True))
    return Fault(item, "bad_encoding", f"line {line}: the row is no text")


def _decode(fields: list[str], codec: CodecInfo | None) -> list[str]:
    """Decode a row that is not UTF-8 by ``codec``, None to guess it from the row; return [] if it is no text."""
    if not any("\udc80" <= letter <= "\udcff" for field in fields if not field.isascii() for letter in field):
        return fields
    raw = [field.encode("utf-8", "surrogateescape") for field in fields]
    codec = codec or guess_codec(b"\t".join(raw))
    found = [decode_as(each, codec) for each in raw]
    n_bad, n_letters = sum(each.n_bad for each in found), sum(len(each.text) for each in found)
    return [each.text for each in found] if n_bad <= MAX_BAD * n_letters else []


def _text_of(line: bytes) -> str:
    """Decode a JSON line: by UTF-8, as JSON asks, else by its letters. Raises UnicodeError if it is no text."""
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        found = decode_as(line, guess_codec(line))
        if found.n_bad > MAX_BAD * len(found.text):
            raise
        return found.text
