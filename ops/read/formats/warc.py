"""Read HTML responses in WARC files, gzipped or not, as documents, with the images in the same file.

The format is ISO 28500, as Common Crawl, Heritrix, wget and browser crawlers write it. A file is a unit. A first pass
finds every response, a second reads the pages. An image that is not in the file becomes a link to fetch.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, NamedTuple

from pairmill.ops.fault import Fault
from pairmill.ops.image.header import format_of
from pairmill.ops.read.document import Document, Picture, Unit
from pairmill.ops.read.page import page, reading_order
from pairmill.ops.read.page.image_elements import ImageElements, PictureReference, is_embedded
from pairmill.ops.read.page.links import NOT_FETCHED, REMOTE, decode_data_uri
from pairmill.ops.read.places.file_table import FileTable
from pairmill.ops.read.places.tree import DOCUMENT_BYTES, Tree
from pairmill.ops.read.places.unpack import seekable
from pairmill.ops.read.records.warc_records import UNTELLING, Record, answer_of, body, opt_out_of, records, sort_of
from pairmill.ops.web_address import absolute_address, address_key

# Records of one address to try, best first.
MOST_TRIED = 4


class Warc:
    """Format for WARC files: HTML pages in file order; a document's metadata has its address, date and record id."""

    name = "warc"
    turn = 10
    version = 1
    suffixes: frozenset[str] = frozenset(("warc", "gz"))
    expects = ".warc or .warc.gz with HTML responses"

    def claim(self, tree: Tree, files: FileTable) -> Iterator[Unit]:
        """Claim .warc and .warc.gz files."""
        for entry in files.of(self.suffixes):
            if entry.path.lower().endswith((".warc", ".warc.gz")):
                files.take(entry.path)
                yield Unit(tree.uri(entry.path), entry.size, entry.etag, self.name)

    def read(self, tree: Tree, unit: Unit) -> Iterator[Document | Fault]:
        """Yield the documents of one WARC file, and a Fault for each record that cannot be read."""
        with seekable(tree, tree.path_of(unit.uri)) as (file, faults, _):
            yield from faults
            yield from _OpenWarc(file, unit.uri).documents()


class _Stored(NamedTuple):
    """A record that is no page; ``sort`` is that of sort_of, and a lower ``rank`` is better."""

    record: Record
    sort: str
    rank: int


@dataclass
class _OpenWarc:
    """An open WARC file at ``uri``, and what the first pass found in it."""

    file: IO[bytes]
    uri: str
    pages: list[Record] = field(default_factory=list)
    # By `address_key`: the records of what is no page, best first; images on the pages so far, and on opted-out pages.
    found: dict[str, list[_Stored]] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    refused: dict[str, Fault] = field(default_factory=dict)

    def documents(self) -> Iterator[Document | Fault]:
        """Yield the documents of the file's pages, then of its images that no page shows."""
        revisits: list[Record] = []
        for record in records(self.file, self.uri):
            if isinstance(record, Fault):
                yield record
            elif record.revisits:
                revisits.append(record)
            elif fault := self._file_away(record):
                yield fault
        yield from self._revisited(revisits)
        for record in self.pages:
            yield from self._page(record)  # no name keeps it: its images may be 256 MB
        for key, found in self.found.items():
            if key in self.shown:
                continue
            record, sort, _ = found[0]
            if sort == "":
                detail = "an answer without a content type that begins neither like a page nor like a picture"
                yield Fault(record.item(self.uri), "bad_record", detail)
            elif sort != "other" and key in self.refused:
                yield self.refused[key]
            elif sort != "other":
                # As in a folder, an image that no page shows is a document.
                data = body(self.file, record.item(self.uri), answer_of(self.file, record))
                held, fault = (b"", data) if isinstance(data, Fault) else (data, None)
                picture = Picture(0, absolute_address(record.url), "", held, fault)
                yield Document(record.item(self.uri), "", _about(record), (picture,))

    def _file_away(self, record: Record) -> Fault | None:
        """Add a record to the pages or to what else was found; return a Fault if it is no HTTP response."""
        if (answer := answer_of(self.file, record)) is None:
            return Fault(record.item(self.uri), "bad_record", "no HTTP response")
        if (sort := sort_of(self.file, answer)) == "page":
            self.pages.append(record)
            return None
        # Of several records of one address the good one counts: the answer to a second try, the complete one.
        rank = (sort != "picture") + 2 * record.is_cut + 4 * (answer.status != 200)
        others = self.found.setdefault(address_key(record.url), [])
        others.append(_Stored(record, sort, rank))
        others.sort(key=lambda found: found.rank)
        del others[MOST_TRIED:]
        return None

    def _revisited(self, revisits: list[Record]) -> Iterator[Fault]:
        """File away each revisit with the payload that it refers to, if the file holds it; else yield a Fault."""
        if not revisits:
            return
        stored = [*self.pages, *(found.record for some in self.found.values() for found in some)]
        by_id = {record.id: record for record in reversed(stored) if record.id}
        by_digest = {record.digest.lower(): record for record in reversed(stored) if record.digest}
        by_url = {address_key(record.url): record for record in reversed(stored)}
        for revisit in revisits:
            record_id, referred = revisit.revisits
            original = (
                by_id.get(record_id)
                or by_digest.get(revisit.digest.lower())
                or by_url.get(address_key(referred or revisit.url))
            )
            digests = {each.digest.lower() for each in (revisit, original) if each and each.digest}
            if original is None or len(digests) > 1:
                answer = answer_of(self.file, revisit)
                if answer is None or answer.type in UNTELLING or sort_of(self.file, answer) != "other":
                    detail = f"a revisit of {referred or revisit.url}, whose content is not in this file"
                    yield Fault(revisit.item(self.uri), "missing", detail)
            elif address_key(revisit.url) != address_key(original.url):
                place = {"offset": original.offset, "size": original.size, "kind": original.kind}
                self._file_away(revisit._replace(**place, own_offset=revisit.offset))

    def _page(self, record: Record) -> Iterator[Document | Fault]:
        """Yield a page's document."""
        item = record.item(self.uri)
        answer = answer_of(self.file, record)
        data = body(self.file, item, answer, heeds_opt_out=False)
        fields = answer.fields if answer else {}
        parsed = data if isinstance(data, Fault) else page.parse(item, data, fields.get("content-type", ""))
        if isinstance(parsed, Fault):
            yield parsed
            return
        base = absolute_address(page.base(parsed.root), record.url) or record.url
        if directive := opt_out_of(fields) or page.opt_out(parsed.root):
            yield Fault(item, "opt_out", directive)
            sources = {source for shown in ImageElements(parsed.root) for source in shown.all_sources}
            for address in {absolute_address(source, base) for source in sources if not is_embedded(source)}:
                self.refused[address_key(address)] = Fault(address, "opt_out", f"the page that shows it: {directive}")
            return
        held: dict[str, bytes | Fault] = {}

        def read_picture(reference: PictureReference, position: int) -> Picture:
            def find(source: str, refused: list[tuple[str, Fault]]) -> Picture | None:
                return self._find(reference, source, position, base, held, refused)

            nowhere = Fault(f"{item}&picture={position}", "missing", "a picture element without a web address")
            found = page.choose_picture(reference, position, nowhere, find)
            self.shown.add(address_key(found.url))
            if len(reference.sources) > 1:
                others = (absolute_address(each, base) for each in reference.sources if not is_embedded(each))
                self.shown.update(map(address_key, others))
            return found

        about = _about(record) | {"charset": parsed.charset}
        yield page.build_document(item, parsed, reading_order.items(parsed.root), read_picture, about)

    def _find(
        self,
        reference: PictureReference,
        source: str,
        position: int,
        base: str,
        held: dict[str, bytes | Fault],
        refused: list[tuple[str, Fault]],
    ) -> Picture | None:
        """Read an image at one of its addresses, else add to ``refused`` why not: a web address is left for a fetch."""
        if is_embedded(source):
            link = decode_data_uri(source)
            if link.data:
                return Picture(position, link.url, reference.alt_text, link.data)
            refused += [(link.url, link.fault)] if link.fault else []
            return None
        address = absolute_address(source, base)
        if (key := address_key(address)) in self.found:
            address = absolute_address(self.found[key][0].record.url)
            data = self._read_once(key, held)
            if not isinstance(data, Fault):
                return Picture(position, address, reference.alt_text, data)
            refused.append((address, data))
        elif source != reference.named_placeholder and address.partition(":")[0].lower() in REMOTE:
            refused.append((address, Fault(address, "missing", NOT_FETCHED)))
        return None

    def _read_once(self, key: str, held: dict[str, bytes | Fault]) -> bytes | Fault:
        """Read an image at most once per page, and limit a page's images to DOCUMENT_BYTES in total."""
        if key not in held:
            room = DOCUMENT_BYTES - sum(len(each) for each in held.values() if isinstance(each, bytes))
            held[key] = self._read(key, room)
        return held[key]

    def _read(self, key: str, room: int) -> bytes | Fault:
        """Read the first record of an address that holds an image of at most ``room`` bytes."""
        read: list[bytes | Fault] = []
        for record in (stored.record for stored in self.found[key]):
            item = record.item(self.uri)
            data = body(self.file, item, answer_of(self.file, record)) if record.size <= room else b""
            if isinstance(data, bytes) and not 0 < len(data) <= room:
                detail = f"the other pictures of its page leave room for {room} bytes"
                data = Fault(item, "too_large", detail)
            if data.reason == "opt_out" if isinstance(data, Fault) else format_of(data):
                return data
            read.append(data)
        return min(read, key=lambda data: isinstance(data, Fault))  # the first of equals


def _about(record: Record) -> dict[str, object]:
    """Return a record's metadata: address, date, record id and payload digest."""
    said: dict[str, object] = {"url": record.url, "crawled": record.date, "warc_record_id": record.id}
    return said | ({"payload_digest": record.digest} if record.digest else {})


FORMATS = (Warc(),)
