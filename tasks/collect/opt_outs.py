"""Read what hosts say of fetching into ``opt_outs``, and heed it: refused addresses, and delays between requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa

from pairmill.catalog.pending.fetches import PORTION
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.ids import text_id
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session

if TYPE_CHECKING:
    from pairmill.ops.fetch.fetcher import Fetcher

MOST_SECONDS, MOST_DELAY = 120, 60  # of an item of delayed addresses; a host that asks for more is not asked at all
_NEWEST = "QUALIFY row_number() OVER (PARTITION BY host, file ORDER BY read_at DESC) = 1"


def heed(
    session: Session, items: Sequence[WorkItem], fetcher: "Fetcher", days: int
) -> tuple[dict[str, str], dict[str, float]]:
    """Read the hosts' files that were not read for ``days``; return why by refused address, and seconds by host.

    A round has at most a million addresses, whose hosts are held in memory.
    """
    from pairmill.ops.fetch.host_rules import FILES, MOST_BYTES, ROBOTS, refused, stated_delay

    of_host: dict[str, list[str]] = defaultdict(list)
    for url in (url for item in items for url in item.keys):
        of_host["{0.scheme}://{0.netloc}".format(urlsplit(url))].append(url)
    since = datetime.now(UTC) - timedelta(days=days)
    fresh = {host for (host,) in session.lake.query("SELECT DISTINCT host FROM opt_outs WHERE read_at > ?", (since,))}
    asked = [f"{host}{file}" for host in sorted(of_host.keys() - fresh) for file in FILES]
    portions = [tuple(asked[n : n + PORTION]) for n in range(0, len(asked), PORTION)]
    reads = [WorkItem(text_id("opt-outs", session.writer.run_id, str(since), *each), each) for each in portions]
    session.work("read opt-outs", reads, ReadOptOuts(replace(fetcher, max_bytes=MOST_BYTES, is_for_rules=True)))
    why, delays = dict[str, str](), dict[str, float]()
    for rows in session.lake.blocks(f"SELECT host, file, outcome, said FROM opt_outs {_NEWEST}", rows=1000):
        for row in rows.to_pylist():
            urls, file = of_host.get(row["host"], []), row["file"]
            if row["outcome"] == "unreachable" and file == ROBOTS:
                why |= dict.fromkeys(urls, "robots.txt could not be read, which refuses all (RFC 9309)")
            elif urls and row["said"]:
                why |= dict.fromkeys(refused(file, row["said"], urls), f"{file} forbids it")
                if file == ROBOTS and (delay := stated_delay(row["said"])) > MOST_DELAY:
                    why |= dict.fromkeys(
                        urls, f"it asks for {delay:g} s between requests; at most {MOST_DELAY} are kept"
                    )
                elif file == ROBOTS and delay:
                    delays[urlsplit(row["host"]).netloc] = delay
    return why, delays


def split_slow(items: Sequence[WorkItem], delays: dict[str, float]) -> tuple[list[WorkItem], list[WorkItem]]:
    """Divide items into those of hosts without a stated delay, and small ones of the others, MOST_SECONDS long."""
    quick, slow = [], []
    for item in items:
        waits = {url: delay for url in item.keys if (delay := delays.get(urlsplit(url).netloc))}
        quick += (
            [item] if not waits else [item.only(rest)] if (rest := [k for k in item.keys if k not in waits]) else []
        )
        n = max(1, int(MOST_SECONDS / max(waits.values(), default=1)))
        slow += [item.only([*waits][first : first + n]) for first in range(0, len(waits), n)]
    return quick, slow


@dataclass(frozen=True)
class ReadOptOuts:
    """Job: request the files of hosts, each named by its address, into ``opt_outs``; a missing file is a row too."""

    stage: ClassVar[str] = "read opt-outs"
    unit: ClassVar[str] = "files"

    fetcher: "Fetcher"

    def __call__(self, item: WorkItem) -> list[Part]:
        """Return the rows of one item's files."""
        rows = []
        for answer in self.fetcher(item.keys):
            unreachable = answer.fault is not None and answer.passing and answer.http_status != 429
            outcome = "unreachable" if unreachable else "absent" if answer.fault else "read"
            rows.append(self._row(answer.url, outcome, answer.http_status, answer.data.decode("utf-8", "replace")))
        return [Part("opt_outs", pa.Table.from_pylist(rows))]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of files that kill their worker: they are taken for unreachable."""
        return [Part("opt_outs", pa.Table.from_pylist([self._row(url, "unreachable", 0, "") for url in item.keys]))]

    def _row(self, url: str, outcome: str, status: int, said: str) -> dict[str, object]:
        """Make the row of one file."""
        at = urlsplit(url)
        return {"host": f"{at.scheme}://{at.netloc}", "file": at.path, "url": url, "outcome": outcome,
                "http_status": status, "said": printable(said), "read_at": datetime.now(UTC)}  # fmt: skip
