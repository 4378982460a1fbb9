"""Read rows of Parquet, CSV, TSV and JSON lines one at a time, in bounded memory.

A unit is a row group of Parquet, a byte range of JSON lines, or a whole CSV or compressed file: a quoted CSV field may
hold line ends, so no byte position marks the start of a row. A row's URI ends in ``#row=N``, for JSON lines in
``#byte=N``, the position in the decompressed file.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import IO, Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.document import DIGESTS, Document, Unit
from pairmill.ops.read.places.file_table import Entry, FileTable, runs
from pairmill.ops.read.places.tree import OneDocument, Tree
from pairmill.ops.read.places.unpack import MAX_RATIO
from pairmill.ops.read.places.zip_members import DAMAGED
from pairmill.ops.read.records.text_rows import LINES, PARQUET, SEPARATED, Row, format_of, text_rows

SUFFIXES = PARQUET | LINES | frozenset(SEPARATED) | {"gz", "zip"}
# One worker reads a range; a row belongs to the range in which it begins, and is read to its end.
RANGE_BYTES = 64 * 2**20
# Rows of Parquet in memory at once: with images (more rows are no faster), or without (1,024 would save 0.5 µs a row).
ROWS_AT_ONCE, SMALL_ROWS_AT_ONCE = 4, 64
# Target size in bytes of a batch, as far as it is known before reading; and the rows per batch of a row group larger
# than that. A row may repeat its column's whole dictionary.
BATCH_BYTES, FEW_ROWS = 128 * 2**20, 8
# Limits in bytes on one row's texts, and on the whole row.
ROW_TEXT, ROW_BYTES = 32 * 2**20, 256 * 2**20
# The size that any row group may reach, beyond 100 times its compressed bytes: repeated texts take no space in Parquet.
ALWAYS_ALLOWED = 256 * 2**20
# pyarrow raises these on damaged files, besides its own exceptions.
BAD_PARQUET = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError, LookupError)
AT_ONCE = 16
LISTS = (
    pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
    pa.types.is_large_list_view,
)  # fmt: skip
# Lists the columns to read, by the kinds of all columns.
Choose: TypeAlias = Callable[[dict[str, str]], list[str]]
# A row's document; a list also has the faults of columns that cannot be read, whose details begin with UNREAD.
Built: TypeAlias = Document | Fault | list[Document | Fault]
UNREAD = "column"
# Builds a row's document from the tree, the table's path, the row's URI and the row.
Build: TypeAlias = Callable[[Tree, str, str, dict[str, Any]], Built]


class TableHeader(NamedTuple):
    """The columns of a table by kind, and the sizes of Parquet's row groups.

    The kinds are 'text', 'texts', 'binary', 'held' (a struct with bytes), 'helds' (a list of these), 'list', 'other'.
    """

    columns: dict[str, str]
    groups: tuple[int, ...] = ()  # in bytes


class RowBatch(NamedTuple):
    """Consecutive rows of a Parquet file; ``first`` is the row number, from 0 in the file, of the first of them."""

    first: int
    rows: pa.RecordBatch


@lru_cache(maxsize=65_536)
def header(tree: Tree, entry: Entry) -> TableHeader | None:
    """Return a table's columns and row groups; None if it is not a table or cannot be read. Cached per listing."""
    if not (format := format_of(entry.path)):
        return None
    try:
        if format == "parquet":
            with tree.open(entry.path) as file:
                found = pq.ParquetFile(file)
                groups = found.metadata
                sizes = tuple(groups.row_group(index).total_byte_size for index in range(groups.num_row_groups))
                return TableHeader(kinds(found.schema_arrow), sizes)
        for found in text_rows(tree, entry.path, 0, None, ""):
            if not isinstance(found, Fault):
                return TableHeader({name: _json_kind(value) for name, value in found[1].items()})
    except (*BAD_PARQUET, *DAMAGED):
        return None
    return None


def tables_of_shape(tree: Tree, files: FileTable, fits: Callable[[dict[str, str]], bool]) -> Iterator[Entry]:
    """Yield the tables whose columns ``fits`` accepts; read headers in parallel: on S3 a footer takes two requests."""
    tables = (entry for entry in files.of(SUFFIXES) if format_of(entry.path))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for some in runs(tables, 4 * AT_ONCE):
            headers = pool.map(lambda entry: header(tree, entry), some)
            yield from [entry for entry, found in zip(some, headers, strict=True) if found and fits(found.columns)]


def claim_tables(tree: Tree, files: FileTable, fits: Callable[[dict[str, str]], bool], format: str) -> Iterator[Unit]:
    """Claim the tables whose columns ``fits`` accepts, and yield their units for the format named ``format``."""
    for entry in tables_of_shape(tree, files, fits):
        files.take(entry.path)
        yield from units(tree, entry, format)


def kinds(schema: pa.Schema) -> dict[str, str]:
    """Return column name -> kind for an Arrow schema; `TableHeader` lists the kinds."""
    return {field.name: _kind(field.type) for field in schema}


def _kind(kind: pa.DataType) -> str:
    """Return the kind of an Arrow type, or of its values or storage; short binary of fixed size is a digest."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _kind(kind.storage_type)
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind):
        return "binary"
    if types.is_fixed_size_binary(kind):
        return "binary" if kind.byte_width > max(DIGESTS) else "other"
    if types.is_struct(kind) and kind.get_field_index("bytes") >= 0:
        return "held"
    if any(each(kind) for each in LISTS):
        return {"text": "texts", "held": "helds"}.get(_kind(kind.value_type), "list")
    return "other"


def _json_kind(value: Any) -> str:
    """Return the kind of a value from JSON lines."""
    if isinstance(value, list):
        return "texts" if value and all(isinstance(each, str) for each in value) else "list"
    return "text" if isinstance(value, str) else "other"


def units(tree: Tree, entry: Entry, format: str) -> list[Unit]:
    """Divide one table into units (row groups or byte ranges) for the format named ``format``."""
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
    """Return the path of the table to which a unit belongs."""
    uri = unit.uri
    for mark in ("#row-group=", "#bytes="):
        uri = uri.rpartition(mark)[0] or uri
    return tree.path_of(uri)


def documents(tree: Tree, unit: Unit, build: Build, choose: Choose | None = None) -> Iterator[Document | Fault]:
    """Yield the document that ``build`` returns for each row of a unit, and a Fault for each unreadable row.

    Files are read within OneDocument's limits. A Parquet unit's caption column that is no text gives one Fault.
    """
    path, told = path_of(tree, unit), set[str]()
    is_parquet = format_of(path) == "parquet"
    for found in rows(tree, unit, choose):
        built = found if isinstance(found, Fault) else build(OneDocument(tree), path, *found)
        if not isinstance(built, list):
            yield built
            continue
        for each in built:
            if isinstance(each, Document) or each.detail not in told:
                yield each
            if isinstance(each, Fault) and is_parquet and each.reason == "bad_record":
                told.add(each.detail)


def rows(tree: Tree, unit: Unit, choose: Choose | None = None) -> Iterator[Row | Fault]:
    """Yield (uri, row) for every row of a unit, in order; ``choose`` selects columns of Parquet.

    A Fault stands for an unreadable row or rest of the table. Raises SourceError if the storage does not respond.
    """
    path = path_of(tree, unit)
    try:
        if format_of(path) == "parquet":
            _, marked, group = unit.uri.rpartition("#row-group=")
            yield from _parquet_rows(tree, path, int(group) if marked else None, choose)
        else:
            start, _, end = unit.uri.rpartition("#bytes=")[2].partition("-") if "#bytes=" in unit.uri else ("0", "", "")
            yield from text_rows(tree, path, int(start), int(end) if end else None, tree.uri(path))
    except FileNotFoundError:
        yield Fault(unit.uri, "missing", "no such file")
    except UnicodeDecodeError as error:
        yield Fault(unit.uri, "bad_encoding", f"not UTF-8: {in_words(error)}")
    except (*BAD_PARQUET, *DAMAGED) as error:
        yield Fault(unit.uri, "bad_record", f"the table is not readable from here: {in_words(error)}")


def batches(file: IO[bytes], uri: str, group: int, choose: Choose | None = None) -> Iterator[RowBatch | Fault]:
    """Yield the rows of a Parquet row group in batches that fit into memory, with the columns that ``choose`` lists.

    A Fault stands for a row that is too large, or for the rest of a row group that exceeds the limit of expansion.
    Raises one of BAD_PARQUET.

    The first batch has one row: if reading raises, `RowGroupMetaData.column` would crash the process (pyarrow 26,
    damaged size statistics), so column chunks are inspected only after one row of each was read.
    """
    table = pq.ParquetFile(file, buffer_size=2**20)
    metadata = table.metadata.row_group(group)
    first = sum(table.metadata.row_group(index).num_rows for index in range(group))
    most = ALWAYS_ALLOWED + MAX_RATIO * file.seek(0, 2)
    if metadata.total_byte_size > most:
        yield Fault(f"{uri}#row-group={group}", "bomb", f"{metadata.total_byte_size} bytes; at most {most} are read")
        return
    columns = choose(kinds(table.schema_arrow)) if choose else None
    seen = 0
    for packed in table.iter_batches(batch_size=1, row_groups=[group], columns=columns):
        if not seen:
            chunks = _chunks(table, metadata, columns)
            size = sum(chunk.total_uncompressed_size for chunk in chunks) if columns else metadata.total_byte_size
            most = ALWAYS_ALLOWED + MAX_RATIO * sum(max(0, chunk.total_compressed_size) for chunk in chunks)
            if size > most:
                yield Fault(f"{uri}#row-group={group}", "bomb", f"{size} bytes; at most {most} are read")
                return
            table.reader.set_batch_size(_rows_at_once(file, table, chunks))
        batch = pa.RecordBatch.from_arrays([_countable(each) for each in packed.columns], names=packed.schema.names)
        seen += max(1, batch.nbytes)
        if seen > most:
            yield Fault(f"{uri}#row={first}", "bomb", f"over {most} bytes in one row group: the rest is not read")
            return
        if batch.nbytes <= ROW_TEXT:
            yield RowBatch(first, batch)
        else:
            yield from _row_by_row(batch, uri, first)
        first += batch.num_rows


def _chunks(table: pq.ParquetFile, group: pq.RowGroupMetaData, columns: list[str] | None) -> list[Any]:
    """List the chunks of a row group's ``columns``, None for all; a group may have more columns than the schema."""
    names = [table.schema.column(index).path.partition(".")[0] for index in range(len(table.schema))]
    wanted = range(min(len(names), group.num_columns))
    return [group.column(index) for index in wanted if columns is None or names[index] in columns]


def _countable(array: pa.Array) -> pa.Array:
    """Replace dictionaries and views by their values, whose ``nbytes`` count repeats, and a slice by itself."""
    if isinstance(array, pa.DictionaryArray):
        return array.dictionary_decode()
    kind = _without_views(array.type)
    return array if kind is array.type else array.cast(kind)


def _without_views(kind: pa.DataType) -> pa.DataType:
    """Return a type with `large_string` and `large_binary` in place of views; the same object if it has none."""
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_binary_view(kind):
        return pa.large_binary()
    if types.is_list(kind) or types.is_large_list(kind):
        value = _without_views(kind.value_type)
        return kind if value == kind.value_type else pa.large_list(value)
    if types.is_struct(kind):
        fields = [field.with_type(_without_views(field.type)) for field in kind]
        return kind if fields == list(kind) else pa.struct(fields)
    return kind


def _row_by_row(batch: pa.RecordBatch, uri: str, first: int) -> Iterator[RowBatch | Fault]:
    """Split a batch into batches of one row; a row over the limits becomes a Fault."""
    for place in range(batch.num_rows):
        row = batch.slice(place, 1)
        texts = sum(row.column(name).nbytes for name, kind in kinds(batch.schema).items() if kind in ("text", "texts"))
        if texts > ROW_TEXT or row.nbytes > ROW_BYTES:
            most = f"at most {ROW_TEXT} of texts and {ROW_BYTES} in all are read"
            yield Fault(f"{uri}#row={first + place}", "too_large", f"a row of {row.nbytes} bytes; {most}")
        else:
            yield RowBatch(first + place, row)


def _rows_at_once(file: IO[bytes], table: pq.ParquetFile, chunks: list[Any]) -> int:
    """Return the rows per batch that keep the batch's size near BATCH_BYTES."""
    large = any(kind in ("binary", "held", "helds") for kind in kinds(table.schema_arrow).values())
    size = ROWS_AT_ONCE if large else SMALL_ROWS_AT_ONCE
    if sum(chunk.total_uncompressed_size for chunk in chunks) > BATCH_BYTES:
        size = min(size, FEW_ROWS)
    repeated = sum(_dictionary_bytes(file, chunk) for chunk in chunks if chunk.has_dictionary_page)
    return max(1, min(size, BATCH_BYTES // max(1, repeated)))


def _dictionary_bytes(file: IO[bytes], chunk: Any) -> int:
    """Read the uncompressed size of a column's dictionary from its page header: one row may hold all of it."""
    if chunk.physical_type not in ("BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"):
        return 0
    file.seek(chunk.dictionary_page_offset)
    # Thrift's compact protocol: field 1 is the page's type, field 2 its uncompressed size, both zigzag varints.
    page = file.read(16)
    fields = []
    at = 0
    for _ in range(2):
        if page[at : at + 1] != b"\x15":
            return chunk.total_uncompressed_size
        value, shift, at = 0, 0, at + 1
        while at < len(page):
            value |= (page[at] & 0x7F) << shift
            shift, at = shift + 7, at + 1
            if not page[at - 1] & 0x80:
                break
        fields.append(value >> 1)
    return fields[1]


def _parquet_rows(tree: Tree, path: str, group: int | None, choose: Choose | None) -> Iterator[Row | Fault]:
    """Yield (uri, row) for each row of a row group; None for a file that had none when it was listed."""
    uri = tree.uri(path)
    with tree.open(path) as file:
        groups = range(pq.ParquetFile(file).num_row_groups) if group is None else (group,)
        for found in (each for index in groups for each in batches(file, uri, index, choose)):
            if isinstance(found, Fault):
                yield found
                continue
            first, batch = found
            try:
                yield from ((f"{uri}#row={first + place}", row) for place, row in enumerate(batch.to_pylist()))
            except (UnicodeDecodeError, pa.ArrowException, ValueError, OverflowError):
                yield from _one_by_one(batch, uri, first)


def _one_by_one(batch: pa.RecordBatch, uri: str, first: int) -> Iterator[Row | Fault]:
    """Convert rows one by one if a value is bad UTF-8 or a date after the year 9999; each costs its row only."""
    for place in range(batch.num_rows):
        item = f"{uri}#row={first + place}"
        try:
            yield item, {name: batch.column(name)[place].as_py() for name in batch.schema.names}
        except UnicodeDecodeError as error:
            yield Fault(item, "bad_encoding", f"a text is not UTF-8: {in_words(error)}")
        except (pa.ArrowException, ValueError, OverflowError) as error:
            yield Fault(item, "bad_record", f"a value cannot be read: {in_words(error)}")
