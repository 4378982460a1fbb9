"""Fetch the images that documents only link to; every address gets a row, with its image or the reason of failure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.pending import contents, fetches
from pairmill.catalog.pending.contents import bans
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.parts import Fetch
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.ops.ban_list import BanList
from pairmill.ops.fault import Fault
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.image.header import Header, inspect, read_exif
from pairmill.tasks.collect.opt_outs import heed, split_slow
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import quarantine
from pairmill.tasks.run.session import Session
from pairmill.tasks.run.stage import cpu_workers

if TYPE_CHECKING:
    from pairmill.ops.fetch.fetcher import Fetcher, FetchResult


def fetch(session: Session) -> None:
    """Request every linked address that has no row in ``fetches``, if the recipe has a ``fetch`` section.

    A round has at most a million addresses. At the end fetched images get rows in ``images``, like ingested ones; a
    killed run resumes with the addresses that have no row.
    """
    n = fetches.count_unfetched(session.lake)

    def fetch_all() -> None:
        while items := fetches.pending_fetches(session.lake):
            _work(session, items)

    if session.recipe.fetch is not None:
        session.compute("fetch", n, fetch_all, -(-n // fetches.PORTION))
        session.follow(lambda: _join_fetched(session))
    elif n:
        are = "is" if n == 1 else "are"
        session.note(f"{counted(n, 'addresses')} of pictures {are} not fetched: the recipe has no `fetch` section.")


def fetch_again(session: Session, reason: str = "", most_times: int = 0) -> int:
    """Retry the addresses that failed for a temporary reason, or for ``reason``; return their number.

    ``most_times`` leaves out addresses that were fetched more often; 0 leaves out none.
    """
    items = fetches.failed_fetches(session.lake, reason, most_times)
    if items:
        _work(session, items, days=0 if reason else None)
        _join_fetched(session)
    return sum(len(item.keys) for item in items)


def _join_fetched(session: Session) -> None:
    """Add rows to ``images`` for the occurrences of fetched images."""
    if fetches.join_fetched(session.lake, lambda: session.begin("join fetched pictures").commit):
        contents.index(session.lake, lambda: session.begin("index contents").commit)


def _work(session: Session, items: Sequence[WorkItem], days: int | None = None) -> None:
    """Fetch the addresses of these items, each worker with its share of the recipe's limits (or of the defaults).

    Each worker needs at least one connection per host. It makes a thousand requests a second, so a few workers are
    enough for a fetch from many hosts. ``days`` is the age from which what hosts say is read again, by default the
    recipe's.
    """
    from pairmill.ops.fetch.fetcher import Fetcher  # aiohttp, 0.2 CPU s: most runs fetch nothing

    settings, ingest = session.recipe.fetch or Fetch.model_validate({}), session.recipe.ingest
    most = min(len(items), cpu_workers(session.placement), settings.per_host, settings.connections)
    workers = max(1, most)
    banned = bans(session.lake)
    fetcher = Fetcher(
        connections=settings.connections // workers,
        per_host=settings.per_host // workers,
        seconds=settings.seconds,
        retries=settings.retries,
        max_bytes=ingest.max_bytes,
        reach=AllowedAddresses(session.allow_addresses),
        banned=BanList.of_entries(banned, settings.banned).addresses,
    )
    job, slow = FetchPictures(fetcher, ingest.max_pixels, BanList.of_entries(banned)), list[WorkItem]()
    if session.recipe.opt_outs:
        why, delays = heed(session, items, fetcher, session.recipe.opt_outs if days is None else days)
        for item in items:
            item.inputs["refused"] = [why.get(url, "") for url in item.keys]
        job = replace(job, fetcher=replace(fetcher, heeds_tdm=True, delays=delays))
        items, slow = split_slow(items, delays)
    session.work("fetch", items, job, workers)
    session.work("fetch", slow, job, 1)  # one process keeps each host's delay


@dataclass(frozen=True)
class FetchPictures:
    """Job: fetch the addresses of one item, into ``fetches``, ``payloads`` and ``quarantine``.

    ``banned`` lists addresses and pictures that must not enter the lake.
    """

    stage: ClassVar[str] = "fetch"
    unit: ClassVar[str] = "addresses"

    fetcher: "Fetcher"
    max_pixels: int
    banned: BanList

    def __call__(self, item: WorkItem) -> list[Part]:
        """Fetch the addresses of one item; return rows of ``fetches``, ``payloads`` and ``quarantine``."""
        from pairmill.ops.fetch.fetcher import FetchResult

        said = dict(zip(item.keys, item.inputs.get("refused", ()), strict=False))
        refused = {url: Fault(url, "opt_out", why) for url, why in said.items() if why}
        refused |= {url: fault for url in item.keys if (fault := self.banned.of_address(url))}
        answers = [FetchResult(url, fault) for url, fault in refused.items()]
        answers += self.fetcher([url for url in item.keys if url not in refused])  # it may leave some for a later item
        rows = [self._row(answer) for answer in answers]
        parts = [Part("fetches", pa.Table.from_pylist(rows, _schema()))]
        payloads = {}
        for row, answer in zip(rows, answers, strict=True):
            if sha256 := row["sha256"]:
                at = {"uri": row["url"], "offset": 0, "length": len(answer.data)}
                payloads[sha256] = {"sha256": sha256, "bytes": answer.data} | at
        if payloads:
            parts.append(Part("payloads", pa.Table.from_pylist(list(payloads.values()))))
        if faults := [Fault(row["url"], row["reason"], row["detail"]) for row in rows if row["reason"]]:
            sources = dict(zip(item.keys, item.inputs["sources"], strict=True))
            parts.append(Part("quarantine", quarantine("fetch", faults, sources)))
        return parts

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make ``fetches`` rows for addresses whose response kills their worker, so that they are not pending again."""
        from pairmill.ops.fetch.fetcher import FetchResult

        fault = Fault("", "poison", "a worker process that fetched it alone died")
        rows = [_row(FetchResult(url, fault.about(url)), fault, "") for url in item.keys]
        return [Part("fetches", pa.Table.from_pylist(rows, _schema()))]

    def _row(self, answer: "FetchResult") -> dict[str, Any]:
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


def _row(answer: "FetchResult", header: Header | Fault, digest: str) -> dict[str, Any]:
    """Make the ``fetches`` row of an answer with its image header or fault."""
    texts = {name: getattr(answer, name) for name in ("final_url", "content_type", "etag", "last_modified")}
    texts["detail"] = header.detail if isinstance(header, Fault) else ""
    row = {name: getattr(answer, name) for name in ("url", "passing", "attempts", "seconds")}
    # Headers need not be UTF-8: aiohttp decodes invalid bytes to lone surrogates, which no table can store.
    row |= {name: without_users(printable(text)) for name, text in texts.items()}
    row |= {"http_status": answer.http_status or None, "fetched_at": datetime.now(UTC)}
    if isinstance(header, Fault):
        return row | {"sha256": None, "reason": header.reason}
    about = json.dumps(read_exif(answer.data), ensure_ascii=False)
    return row | header._asdict() | {"sha256": digest, "n_bytes": len(answer.data), "exif": about, "reason": ""}
