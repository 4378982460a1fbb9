"""Ingest: list the sources, read new units, store the bytes of their images, quarantine unreadable items.

Reads headers and bytes only; no image is decoded. A shard has at most ``documents_per_shard`` listed units or 256 MB of
them, in the order of their names. The listing is a table that spills to disk; only the shards of one round are in
memory. A larger unit (a tar of gigabytes, a list of 10M addresses) is a shard by itself; its rows are written as they
arrive, so that a worker has at most 16 MB of each table in memory.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending import contents, quarantine
from pairmill.catalog.pending.changed_inputs import OWN_CAPTION
from pairmill.catalog.pending.contents import bans
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.parts import Ingest
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import printable_json
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.ban_list import BanList
from pairmill.ops.fault import Fault
from pairmill.ops.image.header import inspect
from pairmill.ops.read.declared_formats import formats
from pairmill.ops.read.document import Document, Picture, Text, Unit, storable_document, web_address
from pairmill.ops.read.page.links import is_link
from pairmill.ops.read.places import retries
from pairmill.ops.read.places.tree import Place
from pairmill.ops.read.source import Source, item_of, open_source, row_of
from pairmill.ops.text.split import SentenceSplitter, normalise
from pairmill.tasks.collect.listing import listed
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import cut_portions
from pairmill.tasks.run.session import Session

# A small source gets smaller shards, so that every CPU has work. The size depends on all listed units, not on the new
# ones: a restarted ingest must compute the same shards.
FEWEST_SHARDS = 16
SMALLEST_SHARD = 16
SMALLEST_BYTES = 16_000_000
SHARD_BYTES = 256_000_000
# A table's rows are written when they reach PART_BYTES: some 25,000 rows of a list, fewer with images or long texts. A
# row costs ROW_BYTES beyond its values: a dict of 300 bytes and a header of 50 bytes for each value.
PART_BYTES = 16_000_000
ROW_BYTES = 500
# Units of one round.
ROUND_UNITS = 250_000


def ingest(session: Session) -> int:
    """Read every new unit of the session's sources; return the number of shards read.

    A unit is identified by its address, size, etag and reader. A changed unit is read again and supersedes its earlier
    rows. A vanished unit is reported and keeps its rows.
    """
    shards, before = 0, retries.count()
    for uri in session.sources:
        source = session.sampled(open_source(uri))
        reading, named = session.recipe.ingest, f"source '{source.uri}'"
        readers = reader_names(reading, session.recipe.captions.own is not None)
        contents.list_units(session.lake, map(row_of, listed(source)), readers, first_readers(reading.language))
        for was, now, n in contents.changed_readers(session.lake):
            session.note(f"{named}: {n:,} units are read again, by {now}; they were read by {was}.", once=True)
        job = IngestUnits(source, settings_for(session.lake, session.recipe))
        for items in new_rounds(session, source):
            shards += session.work("ingest", items, job)
        if gone := contents.list_vanished(session.lake, source.uri):
            session.note(f"{named} no longer holds {len(gone):,} units it held ({gone[0]}, …); their rows stay.")
    limits = session.recipe.ingest
    for reason, n in quarantine.refused_by_lower_limits(session.lake, limits.max_pixels, limits.max_bytes).items():
        session.note(
            f"{n:,} pictures were refused as {reason} by a lower limit than this recipe's: `pairmill run "
            f"{session.recipe.name} --retry {reason}` tries them again."
        )
    if again := retries.count() - before + contents.retries(session.lake, session.writer.run_id):
        requests = counted(again, "requests")
        session.note(f"{requests} to the sources failed for a while and had to be repeated.", once=True)
    session.follow(lambda: contents.index(session.lake, lambda: session.begin("index contents").commit))
    if shards and session.recipe.ingest.payload == "reference":
        session.follow(lambda: copy_places_home(session, contents.referenced_by_run(session.writer.run_id)))
    return shards


def copy_places_home(session: Session, among: str) -> None:
    """Copy the places of images in other shards into the images' home shards, whose workers read no other shard.

    A place is where a source has the bytes: if one source moves a file, another may still have it. ``among`` is a SQL
    condition of `catalog/pending/contents.py` that selects the places. A place takes a row of 150 bytes, plus the
    image's bytes only where the lake has a copy.
    """
    for home, rows in contents.locations_elsewhere(session.lake, among):
        at = zip(*(rows[name].to_pylist() for name in ("sha256", "uri", "offset")), strict=True)
        item = WorkItem(home, tuple(f"{sha256} {uri} {offset}" for sha256, uri, offset in at), tables=("payloads",))
        session.store("remember places", item, [Part("payloads", rows)])


def new_rounds(session: Session, source: Source) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items, one item a shard, over the units of ``source`` that have no row in ``inputs``.

    A round has some ROUND_UNITS units. Files that are no documents are units too. Memory is 18 bytes per listed file:
    sizes, cumulative sums and a flag for new ones.
    """
    sizes, new = contents.listed_sizes(session.lake)
    most = max(SMALLEST_SHARD, -(-len(sizes) // FEWEST_SHARDS))
    most = min(most, most_units(session.recipe.ingest.documents_per_shard, len(sizes)))
    most_bytes = min(SHARD_BYTES, max(SMALLEST_BYTES, int(sizes.sum()) // FEWEST_SHARDS))
    portions = new_portions(sizes, new, most, most_bytes)
    for some in _rounds(portions):
        rows = contents.listed_rows(session.lake, np.concatenate([np.arange(0), *some]))
        items = []
        for shard in (list(islice(rows, len(portion))) for portion in some):
            # A unit that was read before may be back in an earlier state: its partitions need names of their own.
            before = max(commit for _, commit in shard)
            names = source.uri, *([str(before)] if before else [])
            items.append(shard_item([item_of(row) for row, _ in shard], *names))
        yield items


def most_units(asked: int, listed: int) -> int:
    """Return the most units of a shard: as ``asked``; by default more for a source that lists more, for fewer files."""
    is_usual = asked == Ingest.model_fields["documents_per_shard"].default
    return min(max(asked, listed // 100), 10_000) if is_usual else asked


def _rounds(portions: Iterable[np.ndarray]) -> Iterator[list[np.ndarray]]:
    """Batch shards into rounds. Yield one empty round if nothing is new."""
    some: list[np.ndarray] = []
    for portion in portions:
        if sum(map(len, some)) >= ROUND_UNITS:
            yield some
            some = []
        some.append(portion)
    yield some


def new_portions(sizes: np.ndarray, new: np.ndarray, most: int, most_bytes: int = SHARD_BYTES) -> Iterator[np.ndarray]:
    """Cut a listing into shards of at most ``most`` units and ``most_bytes``; yield each new shard's row numbers.

    The whole listing is cut, so that a restarted ingest computes the same shards as the killed one. New units that
    share a shard with old units are gathered and cut again: a few new pages a day must not make a shard each.

    ``sizes``: bytes of each listed unit, int64 (n,); one of over ``most_bytes`` is a shard by itself. ``new``: whether
    each unit is new, bool (n,).
    """
    scattered = new.copy()
    for first, end in cut_portions(sizes, most, most_bytes):
        if new[first:end].all():
            scattered[first:end] = False
            yield np.arange(first, end)
    rows = np.flatnonzero(scattered)
    for first, end in cut_portions(sizes[rows], most, most_bytes):
        yield rows[first:end]


def reader_names(settings: Ingest, own_captions: bool = False) -> dict[str, str]:
    """Return the name of each format's reader: the code that converts a unit to rows, with its version and settings.

    With ``own_captions`` the formats of CAPTIONED read captions as captions.
    """
    case = ", lower case" if settings.case == "lower" else ""
    sentences = f"{settings.language} sentences {SentenceSplitter.version}{case}"
    own = {name: AS_CAPTIONS if own_captions and name in CAPTIONED else "" for name in formats()}
    return {name: f"{name} {format.version}, {sentences}{own[name]}" for name, format in formats().items()}


def first_readers(language: str) -> dict[str, str]:
    """Return the name of each format's first reader, which read all units that have no recorded reader."""
    return {name: f"{name} 1, {language} sentences 1" for name in formats()}


def shard_item(listed: Sequence[Unit | Fault], *names: str) -> WorkItem:
    """Build the work item of one shard of ``listed`` units; the shard's id is a hash of ``names`` and the units."""
    keys = tuple("{}\x1e{}\x1e{}".format(*row_of(found)[:3]) for found in listed)
    return WorkItem(text_id(*names, *keys), keys, inputs={"units": list(listed)})


def settings_for(lake: Lake, recipe: Recipe) -> "IngestSettings":
    """Return the settings of an ingest from the recipe and the lake's ban list."""
    settings = recipe.ingest
    splitter = SentenceSplitter(settings.language, settings.case == "lower")
    readers, banned = reader_names(settings, recipe.captions.own is not None), BanList.of_entries(bans(lake))
    return IngestSettings(settings.max_pixels, settings.max_bytes, splitter, settings.payload, banned, readers)


@dataclass(frozen=True)
class IngestSettings:
    """Settings of an ingest: limits of an image, the readers' names by format (`reader_names`), and the ban list.

    ``payload`` 'copy' stores the images' bytes in the lake, 'reference' only their place at the source.
    """

    max_pixels: int
    max_bytes: int
    splitter: SentenceSplitter
    payload: Literal["copy", "reference"]
    banned: BanList
    readers: Mapping[str, str]


@dataclass(frozen=True)
class IngestUnits:
    """Job: read the units of one shard into documents, images, sentences, payloads, inputs and quarantine.

    An image of which a document has only the web address becomes a row of ``links``, for a later fetch.
    """

    stage: ClassVar[str] = "ingest"
    unit: ClassVar[str] = "files"
    reads_sources: ClassVar[bool] = True  # a unit may be anything, so that a crash is the unit's fault
    shown_as: ClassVar[str] = "Ingest"  # the name in the quarantine details of every lake so far

    source: Source
    settings: IngestSettings

    def __call__(self, item: WorkItem) -> Iterator[Part]:
        """Yield the rows of the shard's units in parts of some PART_BYTES of one table."""
        shard, inputs = _ShardRows(self.source.uri, self.settings), self._inputs(item)
        for unit, row, key in zip(item.inputs["units"], inputs, item.keys, strict=True):
            before = retries.count()
            seconds = row_reports.unit_seconds(row["size"])
            row_reports.begin(key, seconds)
            uri, read = (unit.item, [unit]) if isinstance(unit, Fault) else (unit.uri, self.source.read(unit))
            for found in read:
                if isinstance(found, Fault):
                    shard.fault(found, uri)
                else:
                    yield from shard.add(found, uri, row["reader"])
                del found  # its images are in the rows now; keeping it would keep their bytes
                yield from shard.parts(PART_BYTES)
                row_reports.go_on(key, seconds)
            row["retries"] = retries.count() - before
        yield from shard.parts()
        yield Part("inputs", pa.Table.from_pylist(inputs))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make ``inputs`` rows for units that kill their worker: they are not read again until they change."""
        return [Part("inputs", pa.Table.from_pylist(self._inputs(item)))]

    def _inputs(self, item: WorkItem) -> list[dict[str, Any]]:
        """Make the ``inputs`` row of each unit."""
        listed = (key.rsplit("\x1e", 2) for key in item.keys)  # from the right: a file name may contain the separator
        of = self.settings.readers
        readers = ["" if isinstance(unit, Fault) else of[unit.format] for unit in item.inputs["units"]]
        return [
            {"uri": uri, "size": int(size), "etag": etag, "source": self.source.uri, "retries": 0, "reader": reader}
            for (uri, size, etag), reader in zip(listed, readers, strict=True)
        ]


def _digest(picture: Picture) -> str:
    """Return an image's contribution to its document's id: the id of its bytes, its address if it is only a link."""
    if is_link(picture):
        return picture.url
    return content_id(picture.data) if picture.fault is None else ""


def _size(row: dict[str, Any]) -> int:
    """Estimate the bytes of a row in memory."""
    return ROW_BYTES + sum([len(value) for value in row.values() if isinstance(value, (str, bytes))])


# Formats whose texts are captions of their pictures, and the end of their readers' names where they are read as such.
CAPTIONED = ("image_folder", "webdataset", "url_list", "image_table")
AS_CAPTIONS = ", own captions"
_FIRST = frozenset(first_readers("en").values())


class _ShardRows:
    """Rows of one shard while its units are read; an image's bytes, or each of its places, are stored once."""

    def __init__(self, source: str, settings: IngestSettings) -> None:
        self.source, self.settings = source, settings
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._held: Counter[str] = Counter()
        self._kept: set[tuple[str, Place | None]] = set()

    def parts(self, most: int = 0) -> Iterator[Part]:
        """Yield the collected rows of each table that has over ``most`` bytes, and drop them from memory.

        A part has some PART_BYTES, because it copies its rows.
        """
        for table in [table for table, held in self._held.items() if held > most]:
            del self._held[table]
            rows = self._rows.pop(table)
            rows.reverse()
            while rows:
                piece, size = [rows.pop()], 0
                while rows and size < PART_BYTES:
                    size += _size(piece[-1])
                    piece.append(rows.pop())
                yield Part(table, pa.Table.from_pylist(piece))

    def _hold(self, table: str, row: dict[str, Any]) -> None:
        """Collect a row of a table, and add its size to the table's bytes."""
        self._rows[table].append(row)
        self._held[table] += _size(row)

    def fault(self, fault: Fault, unit: str) -> None:
        """Add a quarantine row for a fault in ``unit``."""
        about = {"reason": fault.reason, "detail": fault.detail, "payload_ref": unit}
        self._hold("quarantine", {"item": web_address(fault.item), "source": self.source, "stage": "ingest"} | about)

    def add(self, document: Document, unit: str, reader: str) -> Iterator[Part]:
        """Add a document's rows; yield parts when its sentences alone exceed PART_BYTES.

        The document's id includes the ``reader``, unless that is the first reader of its format: rows of an earlier
        reader are superseded.
        """
        document = storable_document(document)
        pictures = {place: each for place, each in enumerate(document.items) if isinstance(each, Picture)}
        digests = [_digest(picture) for picture in pictures.values()]
        paragraphs = {place: each.text for place, each in enumerate(document.items) if isinstance(each, Text)}
        is_captioned = reader.endswith(AS_CAPTIONS) and len(pictures) == 1 and bool(paragraphs)
        if is_captioned:  # the first of its lines, as of several captions in kohya's `.txt`
            document.metadata[OWN_CAPTION] = next(iter(paragraphs.values()))
        metadata = json.dumps(document.metadata, sort_keys=True, ensure_ascii=False)
        read_by = [] if reader in _FIRST else [reader]
        document_id = text_id(self.source, document.uri, *read_by, *digests, *paragraphs.values())
        if banned := self.settings.banned.of_document(document_id, document.uri):
            self.fault(banned, unit)
            return
        about = {"title": document.title, "metadata": without_users(printable_json(metadata)), "unit": unit}
        self._hold("documents", {"document_id": document_id, "source": self.source, "uri": document.uri} | about)
        for (place, picture), digest in zip(pictures.items(), digests, strict=True):
            if banned := self.settings.banned.of_address(picture.url):
                self.fault(banned, unit)
            elif is_link(picture):
                where = {"document_id": document_id, "position": picture.position, "reading_order": place}
                self._hold("links", {"url": picture.url, "alt_text": picture.alt_text, "source": self.source} | where)
            else:
                self._add_picture(picture, digest, document_id, unit, place)
        splitter = self.settings.splitter
        # The text of a content id is stored once, whatever the case of its first occurrence.
        case = ["lower case"] if splitter.is_lower else []
        texts = {} if is_captioned else paragraphs
        sentences = ((place, sentence) for place, text in texts.items() for sentence in splitter(text))
        for position, (place, sentence) in enumerate(sentences):
            sentence_id, content = text_id(document_id, str(position), sentence), text_id(normalise(sentence), *case)
            where = {"document_id": document_id, "position": position, "reading_order": place}
            self._hold("sentences", {"sentence_id": sentence_id, "text": sentence, "content": content} | where)
            if self._held["sentences"] > PART_BYTES:
                yield from self.parts(PART_BYTES)

    def _add_picture(self, picture: Picture, digest: str, document_id: str, unit: str, place: int) -> None:
        """Add an image and its bytes, or a quarantine row if its header cannot be used."""
        limits = self.settings
        header = picture.fault or limits.banned.of_picture(picture.data, digest)
        header = header or inspect(picture.data, limits.max_pixels, limits.max_bytes)
        if isinstance(header, Fault):
            self.fault(header.about(picture.url), unit)
            return
        image_id = text_id(document_id, str(picture.position), digest)
        row = {"image_id": image_id, "url": picture.url, "alt_text": picture.alt_text, "sha256": digest}
        row |= {"document_id": document_id, "position": picture.position, "reading_order": place}
        self._hold("images", row | header._asdict() | {"n_bytes": len(picture.data)})
        stored_at = picture.place if self.settings.payload == "reference" else None
        if (digest, stored_at) not in self._kept:
            self._kept.add((digest, stored_at))
            where = {"bytes": picture.data, "uri": picture.url, "offset": 0}
            if stored_at is not None:
                where = {"bytes": None, "uri": stored_at.uri, "offset": stored_at.offset}
            self._hold("payloads", where | {"sha256": digest, "length": len(picture.data)})
