"""Ingest: list what a source holds, read what is new, keep its bytes, quarantine what could not be read.

Headers and bytes only, no decode. A shard is at most ``documents_per_shard`` listed units, or 256 MB of them, in the
order of their names. A single larger unit (a tar of gigabytes, a list of 10M addresses) is a shard by itself; its rows
are written as they come, so that a worker holds 16 MB of each table.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa

from catalog.pending import contents, other_places, quarantine
from catalog.pending.item import WorkItem
from catalog.terms.ids import content_id, text_id
from ops.fault import Fault
from ops.image.header import inspect
from ops.read.document import Document, Picture, Text, Unit
from ops.read.page.links import is_link
from ops.read.places import retries
from ops.read.places.tree import Place
from ops.read.source import FORMATS, Source, open_source
from ops.text.split import SentenceSplitter, normalise
from tasks.remember_places import remember
from tasks.run.session import Session
from tasks.run.stage import Part

# A small source is cut finer, so that every CPU has work. By what is listed, not by what is new: a killed ingest must
# find its shards again.
FEWEST_SHARDS = 16
SMALLEST_SHARD = 16
SMALLEST_BYTES = 16_000_000
SHARD_BYTES = 256_000_000
# A table's rows are written when they hold so many bytes: some 25,000 rows of a list, fewer where they hold pictures or
# long texts. Beside its values a row is a dict of 300 bytes and a header of 50 for each of them.
PART_BYTES = 16_000_000
ROW_BYTES = 500


def ingest(session: Session) -> int:
    """Read every unit of the session's sources that the lake does not hold yet. Returns the number of shards read.

    A unit is known by its address, size, etag and reader; a changed one is read again and supersedes what it held
    before, a vanished one is reported and keeps its rows.
    """
    shards, before = 0, retries.made()
    for uri in session.sources:
        source = open_source(uri)
        listed = listing(source)
        shards += session.work("ingest", new_shards(session, source, listed), Ingest(source, ingest_settings(session)))
        if gone := contents.vanished(session.lake, source.uri, [row[:3] for row in listed]):
            session.note(
                f"source '{source.uri}' no longer holds {len(gone):,} units it held ({gone[0]}, …); their rows stay."
            )
    limits = session.recipe.ingest
    for reason, n in quarantine.refused_by_lower_limits(session.lake, limits.max_pixels, limits.max_bytes).items():
        session.note(
            f"{n:,} pictures were refused as {reason} by a lower limit than this recipe's: `pairmill replay --reason "
            f"{reason}` tries them again."
        )
    if again := retries.made() - before + contents.retries(session.lake, session.writer.run_id):
        session.note(f"{again:,} requests to the sources failed for a while and were made again.")
    session.follow(lambda: _index_new(session, shards))
    return shards


def _index_new(session: Session, shards: int) -> None:
    """Give what was read its home shards, and remember the places of pictures that the lake only refers to."""
    contents.index(session.lake, lambda: session.begin("index contents").commit)
    if shards and session.recipe.ingest.payload == "reference":
        remember(session, other_places.of_run(session.writer.run_id))


def listing(source: Source) -> list[tuple]:
    """List (uri, size, etag, unit) of all in ``source`` by uri; for files that are no documents unit is a Fault."""
    listed: list[tuple] = [(unit.uri, unit.size, unit.etag, unit) for unit in source.units()]
    listed += [(fault.item, 0, "ignored", fault) for fault in source.ignored()]
    return sorted(listed, key=lambda row: row[0])


def new_shards(session: Session, source: Source, listed: list[tuple]) -> list[WorkItem]:
    """List work items over units of ``source`` that are not in ``inputs``, files that are no documents included."""
    language = session.recipe.ingest.language
    names = reader_names(language)
    readers = [_reader(row[3], names) for row in listed]
    older = dict(zip(names.values(), first_readers(language).values(), strict=True))
    new, again = contents.unknown_inputs(session.lake, [row[:3] for row in listed], readers, older)
    for (was, now), n in sorted(again.items()):
        session.note(f"source '{source.uri}': {n:,} units are read again, by {now}; they were read by {was}.")
    most = min(session.recipe.ingest.documents_per_shard, max(SMALLEST_SHARD, -(-len(listed) // FEWEST_SHARDS)))
    most_bytes = min(SHARD_BYTES, max(SMALLEST_BYTES, sum(row[1] for row in listed) // FEWEST_SHARDS))
    return [
        # What was read before is other work now, though it be what it once was: its partitions need other names.
        shard_item(shard, source.uri, *([str(before)] if (before := max(new[row[:3]] for row in shard)) else []))
        for shard in new_portions(listed, new.keys(), most, most_bytes)
    ]


def new_portions(
    listed: Sequence[tuple], new: Set[tuple], most: int, most_bytes: int = SHARD_BYTES
) -> list[list[tuple]]:
    """Cut (uri, size, etag, unit) rows into shards of at most ``most`` units and bytes, and keep what is ``new``.

    The whole listing is cut, so that a killed ingest finds the shards that it had not committed as they were. New
    units among old ones are gathered and cut anew: a few pages a day do not make a shard a page.
    """
    shards = cut_portions(listed, most, most_bytes)
    whole = [shard for shard in shards if all(row[:3] in new for row in shard)]
    known = {row[:3] for shard in whole for row in shard}
    scattered = [row for row in listed if row[:3] in new and row[:3] not in known]
    return whole + cut_portions(scattered, most, most_bytes)


def cut_portions(listed: Sequence[tuple], most: int, most_bytes: int) -> list[list[tuple]]:
    """Cut (uri, size, etag, unit) rows into runs of at most ``most`` and ``most_bytes`` (a larger one alone)."""
    shards: list[list[tuple]] = []
    n_bytes = 0
    for row in listed:
        if not shards or len(shards[-1]) == most or n_bytes + row[1] > most_bytes:
            shards.append([])
            n_bytes = 0
        shards[-1].append(row)
        n_bytes += row[1]
    return shards


def reader_names(language: str) -> dict[str, str]:
    """Name, by format, who reads a unit of it: all that makes rows out of its bytes."""
    splitter = SentenceSplitter.version
    return {name: f"{name} {format.version}, {language} sentences {splitter}" for name, format in FORMATS.items()}


def first_readers(language: str) -> dict[str, str]:
    """Name, by format, who read before readers were noted."""
    return {name: f"{name} 1, {language} sentences 1" for name in FORMATS}


def shard_item(listed: Sequence[tuple], *names: str) -> WorkItem:
    """Make one shard's work item, named by ``names`` and what it holds."""
    keys = tuple(f"{uri}\x1e{size}\x1e{etag}" for uri, size, etag, _ in listed)
    return WorkItem(text_id(*names, *keys), keys, inputs={"units": [row[3] for row in listed]})


def ingest_settings(session: Session) -> "IngestSettings":
    settings = session.recipe.ingest
    banned = contents.banned(session.lake)
    readers = reader_names(settings.language)
    return IngestSettings(settings.max_pixels, settings.max_bytes, settings.language, settings.payload, banned, readers)


@dataclass(frozen=True)
class IngestSettings:
    """Limits of ingest: ``max_pixels`` and ``max_bytes`` bound one picture; ``payload`` 'reference' leaves its bytes
    where the source has them as they are; ``banned`` are ids (sha256) that must not enter; ``readers`` are the names
    of those who read, by format."""

    max_pixels: int
    max_bytes: int
    language: str
    payload: Literal["copy", "reference"]
    banned: frozenset[str]
    readers: Mapping[str, str]


@dataclass(frozen=True)
class Ingest:
    """A job: read the units of one shard, to documents, images, sentences, payloads, inputs and quarantine.

    Pictures that are only named by a web address become rows of ``links``, for the fetch to take up.
    """

    stage: ClassVar[str] = "ingest"

    source: Source
    settings: IngestSettings

    def __call__(self, item: WorkItem) -> Iterator[Part]:
        shard, inputs = _ShardRows(self.source.uri, self.settings), self._inputs(item)
        for unit, row in zip(item.inputs["units"], inputs, strict=True):
            before = retries.made()
            read = [unit] if isinstance(unit, Fault) else self.source.read(unit)
            for found in read:
                if isinstance(found, Fault):
                    shard.fault(found, _uri(unit))
                else:
                    shard.add(found, _uri(unit), row["reader"])
                yield from shard.parts(PART_BYTES)
            row["retries"] = retries.made() - before
        yield from shard.parts()
        yield Part("inputs", pa.Table.from_pylist(inputs))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows for units that kill their worker: they count as read, and are not tried again as they are."""
        return [Part("inputs", pa.Table.from_pylist(self._inputs(item)))]

    def _inputs(self, item: WorkItem) -> list[dict[str, Any]]:
        listed = (key.rsplit("\x1e", 2) for key in item.keys)  # a file's name may hold it too
        readers = [_reader(unit, self.settings.readers) for unit in item.inputs["units"]]
        return [
            {"uri": uri, "size": int(size), "etag": etag, "source": self.source.uri, "retries": 0, "reader": reader}
            for (uri, size, etag), reader in zip(listed, readers, strict=True)
        ]


def _uri(unit: Unit | Fault) -> str:
    return unit.item if isinstance(unit, Fault) else unit.uri


def _reader(unit: Unit | Fault, names: Mapping[str, str]) -> str:
    return "" if isinstance(unit, Fault) else names[unit.format]


def _digest(picture: Picture) -> str:
    """Return what a picture adds to its document's id: the id of its bytes, or its address until it is fetched."""
    if is_link(picture):
        return picture.url
    return content_id(picture.data) if picture.fault is None else ""


_FIRST = frozenset(first_readers("en").values())


class _ShardRows:
    """Rows of one shard as they are read; a picture's bytes (or each of its places) are kept once, however often it
    occurs."""

    def __init__(self, source: str, settings: IngestSettings) -> None:
        self.source, self.settings = source, settings
        self._rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._held: Counter[str] = Counter()
        self._splitter = SentenceSplitter(settings.language)
        self._kept: set[tuple[str, Place | None]] = set()

    def parts(self, most: int = 0) -> Iterator[Part]:
        """Hand over the rows of each table that holds over ``most`` bytes."""
        for table in [table for table, held in self._held.items() if held > most]:
            del self._held[table]
            yield Part(table, pa.Table.from_pylist(self._rows.pop(table)))

    def _hold(self, table: str, row: dict[str, Any]) -> None:
        self._rows[table].append(row)
        self._held[table] += ROW_BYTES + sum([len(value) for value in row.values() if isinstance(value, (str, bytes))])

    def fault(self, fault: Fault, unit: str) -> None:
        about = {"reason": fault.reason, "detail": fault.detail, "payload_ref": unit}
        self._hold("quarantine", {"item": fault.item, "source": self.source, "stage": "ingest"} | about)

    def add(self, document: Document, unit: str, reader: str) -> None:
        """Hold a document's rows. Its id holds who read it, unless that was the first ``reader`` of its format: what it
        gave to the one before counts no longer."""
        pictures = [each for each in document.items if isinstance(each, Picture)]
        digests = [_digest(picture) for picture in pictures]
        texts = [each.text for each in document.items if isinstance(each, Text)]
        read_by = [] if reader in _FIRST else [reader]
        document_id = text_id(self.source, document.uri, *read_by, *digests, *texts)
        self._hold(
            "documents",
            {
                "document_id": document_id,
                "source": self.source,
                "uri": document.uri,
                "title": document.title,
                "metadata": json.dumps(document.metadata, sort_keys=True, ensure_ascii=False),
                "unit": unit,
            },
        )
        for picture, digest in zip(pictures, digests, strict=True):
            if is_link(picture):
                self._add_link(picture, document_id)
            else:
                self._add_picture(picture, digest, document_id, unit)
        for position, sentence in enumerate(sentence for text in texts for sentence in self._splitter(text)):
            self._hold(
                "sentences",
                {
                    "sentence_id": text_id(document_id, str(position), sentence),
                    "document_id": document_id,
                    "position": position,
                    "text": sentence,
                    "content": text_id(normalise(sentence)),
                },
            )

    def _add_link(self, picture: Picture, document_id: str) -> None:
        place = {"document_id": document_id, "position": picture.position, "alt_text": picture.alt_text}
        self._hold("links", {"url": picture.url, "source": self.source} | place)

    def _add_picture(self, picture: Picture, digest: str, document_id: str, unit: str) -> None:
        header = picture.fault or self._inspect(picture.data, digest)
        if isinstance(header, Fault):
            self.fault(header.about(picture.url), unit)
            return
        self._hold(
            "images",
            {
                "image_id": text_id(document_id, str(picture.position), digest),
                "document_id": document_id,
                "position": picture.position,
                "url": picture.url,
                "alt_text": picture.alt_text,
                "sha256": digest,
                "width": header.width,
                "height": header.height,
                "format": header.format,
                "animated": header.animated,
                "n_bytes": len(picture.data),
            },
        )
        place = picture.place if self.settings.payload == "reference" else None
        if (digest, place) not in self._kept:
            self._kept.add((digest, place))
            where = {"bytes": picture.data, "uri": picture.url, "offset": 0}
            if place is not None:
                where = {"bytes": None, "uri": place.uri, "offset": place.offset}
            self._hold("payloads", where | {"sha256": digest, "length": len(picture.data)})

    def _inspect(self, data: bytes, digest: str):
        if digest in self.settings.banned:
            return Fault(digest, "banned", "this picture's sha256 is in the lake's ban list")
        return inspect(data, self.settings.max_pixels, self.settings.max_bytes)
