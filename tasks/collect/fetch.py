"""Fetch the pictures that documents only link to; every address gets a row, fetched or with its reason."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.pending import contents, fetches
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.fault import Fault
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.fetch.answer import FetchResult
from pairmill.ops.fetch.refusal import Banned
from pairmill.ops.image.exif import exif
from pairmill.ops.image.header import Header, inspect
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.rows import quarantine
from pairmill.tasks.run.session import Session

if TYPE_CHECKING:
    from pairmill.ops.fetch.fetcher import Fetcher


def fetch(session: Session) -> None:
    """Ask for every address that was never asked for, if the recipe has a ``fetch`` section.

    A round is at most a million addresses; what is fetched counts as ingested at its end, and a run that was killed
    goes on with the addresses that have no row yet.
    """
    n = fetches.count_unfetched(session.lake)
    if session.recipe.fetch is not None:
        session.compute("fetch", n, lambda: _fetch_all(session), -(-n // fetches.PORTION))
        session.follow(lambda: join_fetched(session))
    elif n:
        session.note(f"{n:,} addresses of pictures are not fetched: the recipe has no `fetch` section.")


def _fetch_all(session: Session) -> None:
    while items := fetches.unfetched(session.lake):
        _work(session, items)


def _work(session: Session, items: Sequence[WorkItem]) -> None:
    workers = most_workers(session, len(items))
    session.work("fetch", items, fetch_job(session, workers), workers)


def most_workers(session: Session, n_items: int) -> int:
    """Return how many workers share the limits of a fetch: each must have one connection to a host at least.

    A worker makes a thousand requests a second, so few do not slow a fetch from many hosts down.
    """
    settings = session.recipe.fetch
    assert settings is not None
    return max(1, min(n_items, session.placement.n_workers, settings.per_host, settings.connections))


def fetch_again(session: Session, reason: str = "") -> int:
    """Ask again for the addresses that failed for a passing reason, or for ``reason``. Returns how many addresses."""
    items = fetches.failed(session.lake, reason)
    _work(session, items)
    join_fetched(session)
    return sum(len(item.keys) for item in items)


def join_fetched(session: Session) -> None:
    """Give occurrences of fetched pictures their rows in ``images``."""
    if fetches.join(session.lake, lambda: session.begin("join fetched pictures").commit):
        contents.index(session.lake, lambda: session.begin("index contents").commit)


def fetch_job(session: Session, workers: int) -> "FetchPictures":
    """Make the job of this session. Limits hold for the run: its ``workers`` share them, `most_workers` at most."""
    from pairmill.ops.fetch.fetcher import Fetcher  # aiohttp, 0.2 CPU s: most runs fetch nothing

    settings, ingest = session.recipe.fetch, session.recipe.ingest
    assert settings is not None
    return FetchPictures(
        Fetcher(
            connections=settings.connections // workers,
            per_host=settings.per_host // workers,
            seconds=settings.seconds,
            retries=settings.retries,
            max_bytes=ingest.max_bytes,
            reach=AllowedAddresses(session.allow_addresses),
            banned=Banned(tuple(settings.banned)),
        ),
        ingest.max_pixels,
        contents.banned(session.lake),
    )


@dataclass(frozen=True)
class FetchPictures:
    """A job: fetch the addresses of one item, to fetches, payloads and quarantine. ``banned`` are ids (sha256)."""

    stage: ClassVar[str] = "fetch"

    fetcher: "Fetcher"
    max_pixels: int
    banned: frozenset[str]

    def __call__(self, item: WorkItem) -> list[Part]:
        answers = self.fetcher(item.keys)
        fetches = [self._row(answer) for answer in answers]
        payloads = {
            row["sha256"]: _payload(row, answer.data)
            for row, answer in zip(fetches, answers, strict=True)
            if row["sha256"]
        }
        return _parts(item, fetches, list(payloads.values()))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows for addresses whose answer kills its worker: they count as asked for."""
        fault = Fault("", "poison", "a worker process that fetched it alone died")
        rows = [_row(FetchResult(url, fault.about(url)), fault, "") for url in item.keys]
        return [Part("fetches", pa.Table.from_pylist(rows, _schema()))]

    def _row(self, answer: FetchResult) -> dict[str, Any]:
        if answer.fault is not None:
            return _row(answer, answer.fault, "")
        digest = content_id(answer.data)
        if digest in self.banned:
            return _row(answer, Fault(digest, "banned", "this picture's sha256 is in the lake's ban list"), "")
        return _row(answer, inspect(answer.data, self.max_pixels, self.fetcher.max_bytes), digest)


def _schema() -> pa.Schema:
    """Return the columns that a job writes; the runner adds the rest."""
    return pa.schema([field for field in arrow_schema("fetches") if field.name not in ("shard", "commit")])


def _row(answer: FetchResult, header: Header | Fault, digest: str) -> dict[str, Any]:
    texts = {
        "final_url": answer.final_url,
        "content_type": answer.content_type,
        "etag": answer.etag,
        "last_modified": answer.last_modified,
        "detail": header.detail if isinstance(header, Fault) else "",
    }
    row = {
        "url": answer.url,
        # What a server says need not be UTF-8: aiohttp leaves half letters for what is not, and no table can hold them.
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
    about = json.dumps(exif(answer.data), ensure_ascii=False)
    return row | found | {"sha256": digest, "n_bytes": len(answer.data), "exif": about, "reason": ""}


def _payload(row: dict[str, Any], data: bytes) -> dict[str, Any]:
    return {"sha256": row["sha256"], "bytes": data, "uri": row["url"], "offset": 0, "length": len(data)}


def _parts(item: WorkItem, fetches: list[dict[str, Any]], payloads: list[dict[str, Any]]) -> list[Part]:
    parts = [Part("fetches", pa.Table.from_pylist(fetches, _schema()))]
    if payloads:
        parts.append(Part("payloads", pa.Table.from_pylist(payloads)))
    faults = [Fault(row["url"], row["reason"], row["detail"]) for row in fetches if row["reason"]]
    if faults:
        source = dict(zip(item.keys, item.inputs["sources"], strict=True))
        urls = [fault.item for fault in faults]
        parts.append(Part("quarantine", quarantine(urls, [source[url] for url in urls], "fetch", faults)))
    return parts
