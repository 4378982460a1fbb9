"""Fetch the images that documents only link to; every address gets a row, with its image or the reason of failure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.pending import contents, fetches
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.parts import Fetch
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.ban_list import BanList
from pairmill.ops.fault import Fault
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.fetch.answer import FetchResult
from pairmill.ops.image.header import Header, inspect, read_exif
from pairmill.tasks.collect.bans_of_lake import ban_list
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import quarantine
from pairmill.tasks.run.session import Session
from pairmill.tasks.run.stage import cpu_workers

if TYPE_CHECKING:
    from pairmill.ops.fetch.fetcher import Fetcher


def fetch(session: Session) -> None:
    """Request every address that has no row yet, if the recipe has a ``fetch`` section.

    A round has at most a million addresses. Fetched images count as ingested at the end; a killed run resumes with the
    addresses that have no row.
    """
    n = fetches.count_unfetched(session.lake)
    if session.recipe.fetch is not None:
        session.compute("fetch", n, lambda: _fetch_all(session), -(-n // fetches.PORTION))
        session.follow(lambda: join_fetched(session))
    elif n:
        session.note(f"{n:,} addresses of pictures are not fetched: the recipe has no `fetch` section.")


def _fetch_all(session: Session) -> None:
    """Fetch round after round until every address has a row."""
    while items := fetches.unfetched(session.lake):
        _work(session, items)


def _work(session: Session, items: Sequence[WorkItem]) -> None:
    """Fetch the addresses of these items."""
    workers = most_workers(session, len(items))
    session.work("fetch", items, fetch_job(session, workers), workers)


def most_workers(session: Session, n_items: int) -> int:
    """Return the number of workers that share a fetch's limits: each needs at least one connection per host.

    A worker makes a thousand requests a second, so a few are enough for a fetch from many hosts.
    """
    settings = _settings(session)
    return max(1, min(n_items, cpu_workers(session.placement), settings.per_host, settings.connections))


def fetch_again(session: Session, reason: str = "", most_times: int = 0) -> int:
    """Retry the addresses that failed for a temporary reason, or for ``reason``; return the number of addresses.

    ``most_times`` leaves out addresses that were fetched more often, 0 none.
    """
    items = fetches.failed(session.lake, reason, most_times)
    if items:
        _work(session, items)
        join_fetched(session)
    return sum(len(item.keys) for item in items)


def _settings(session: Session) -> Fetch:
    """Return the recipe's fetch settings, the defaults if it has none: a retry then fetches nevertheless."""
    return session.recipe.fetch or Fetch.model_validate({})


def join_fetched(session: Session) -> None:
    """Add rows to ``images`` for the occurrences of fetched images."""
    if fetches.join(session.lake, lambda: session.begin("join fetched pictures").commit):
        contents.index(session.lake, lambda: session.begin("index contents").commit)


def fetch_job(session: Session, workers: int) -> "FetchPictures":
    """Make the fetch job of one of ``workers`` workers, with its share of the connection limits.

    The recipe's limits hold for the whole run. `most_workers` is the most workers that can share them.
    """
    from pairmill.ops.fetch.fetcher import Fetcher  # aiohttp, 0.2 CPU s: most runs fetch nothing

    settings, ingest = _settings(session), session.recipe.ingest
    return FetchPictures(
        Fetcher(
            connections=settings.connections // workers,
            per_host=settings.per_host // workers,
            seconds=settings.seconds,
            retries=settings.retries,
            max_bytes=ingest.max_bytes,
            reach=AllowedAddresses(session.allow_addresses),
            banned=ban_list(session.lake, tuple(settings.banned)).addresses,
        ),
        ingest.max_pixels,
        ban_list(session.lake),
    )


@dataclass(frozen=True)
class FetchPictures:
    """Job: fetch the addresses of one item, into fetches, payloads and quarantine.

    ``banned`` is what must not enter the lake.
    """

    stage: ClassVar[str] = "fetch"
    unit: ClassVar[str] = "addresses"

    fetcher: "Fetcher"
    max_pixels: int
    banned: BanList

    def __call__(self, item: WorkItem) -> list[Part]:
        """Fetch the addresses of one item."""
        refused = {url: fault for url in item.keys if (fault := self.banned.of_address(url))}
        asked = iter(self.fetcher([url for url in item.keys if url not in refused]))
        answers = [FetchResult(url, refused[url]) if url in refused else next(asked) for url in item.keys]
        fetches = [self._row(answer) for answer in answers]
        payloads = {
            row["sha256"]: _payload(row, answer.data)
            for row, answer in zip(fetches, answers, strict=True)
            if row["sha256"]
        }
        return _parts(item, fetches, list(payloads.values()))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows for addresses whose response kills their worker: they count as requested."""
        fault = Fault("", "poison", "a worker process that fetched it alone died")
        rows = [_row(FetchResult(url, fault.about(url)), fault, "") for url in item.keys]
        return [Part("fetches", pa.Table.from_pylist(rows, _schema()))]

    def _row(self, answer: FetchResult) -> dict[str, Any]:
        """Make the ``fetches`` row of an answer, after checking its image against limits and ban list."""
        if answer.fault is not None:
            return _row(answer, answer.fault, "")
        digest = content_id(answer.data)
        if banned := self.banned.of_picture(answer.data, digest):
            return _row(answer, banned, "")
        return _row(answer, inspect(answer.data, self.max_pixels, self.fetcher.max_bytes), digest)


def _schema() -> pa.Schema:
    """Return the columns that the job writes; the runner adds the others."""
    return pa.schema([field for field in arrow_schema("fetches") if field.name not in ("shard", "commit")])


def _row(answer: FetchResult, header: Header | Fault, digest: str) -> dict[str, Any]:
    """Make the ``fetches`` row of an answer with its image header or fault."""
    texts = {
        "final_url": answer.final_url,
        "content_type": answer.content_type,
        "etag": answer.etag,
        "last_modified": answer.last_modified,
        "detail": header.detail if isinstance(header, Fault) else "",
    }
    row = {
        "url": answer.url,
        # Headers need not be UTF-8: aiohttp decodes invalid bytes to lone surrogates, which no table can store.
        **{name: without_users(printable(text)) for name, text in texts.items()},
        "http_status": answer.http_status or None,
        "passing": answer.passing,
        "attempts": answer.attempts,
        "seconds": answer.seconds,
        "fetched_at": datetime.now(UTC),
    }
    if isinstance(header, Fault):
        return row | {"sha256": None, "reason": header.reason}
    found = {"width": header.width, "height": header.height, "format": header.format, "animated": header.animated}
    about = json.dumps(read_exif(answer.data), ensure_ascii=False)
    return row | found | {"sha256": digest, "n_bytes": len(answer.data), "exif": about, "reason": ""}


def _payload(row: dict[str, Any], data: bytes) -> dict[str, Any]:
    """Make the ``payloads`` row of a fetched image."""
    return {"sha256": row["sha256"], "bytes": data, "uri": row["url"], "offset": 0, "length": len(data)}


def _parts(item: WorkItem, fetches: list[dict[str, Any]], payloads: list[dict[str, Any]]) -> list[Part]:
    """Make the parts of an item: fetches, payloads, and quarantine rows of the failures."""
    parts = [Part("fetches", pa.Table.from_pylist(fetches, _schema()))]
    if payloads:
        parts.append(Part("payloads", pa.Table.from_pylist(payloads)))
    faults = [Fault(row["url"], row["reason"], row["detail"]) for row in fetches if row["reason"]]
    if faults:
        source = dict(zip(item.keys, item.inputs["sources"], strict=True))
        urls = [fault.item for fault in faults]
        parts.append(Part("quarantine", quarantine(urls, [source[url] for url in urls], "fetch", faults)))
    return parts
