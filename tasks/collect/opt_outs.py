"""Read what hosts say of fetching into ``opt_outs``, and heed it: refused addresses, and delays between requests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa

from pairmill.catalog.pending.fetches import PORTION, opt_outs, read_hosts
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.ids import text_id
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session

if TYPE_CHECKING:
    from pairmill.ops.fetch.fetcher import Fetcher

MOST_SECONDS, MOST_DELAY = 120, 60  # of an item of delayed addresses; a host that asks for more is not asked at all


def host_of(url: str) -> str:
    """Return scheme, name and port of an address on the web, '' for any other."""
    try:
        at = urlsplit(url)
    except ValueError:
        return ""
    return f"{at.scheme}://{at.netloc}" if at.scheme in ("http", "https") and at.netloc else ""


def heed(
    session: Session, items: Sequence[WorkItem], fetcher: "Fetcher", days: int
) -> tuple[dict[str, str], dict[str, float]]:
    """Read the hosts' files that were not read for ``days``; return why by refused address, and seconds by host.

    A round has at most a million addresses, whose hosts are held in memory.
    """
    from pairmill.ops.fetch.host_rules import FILES, MOST_BYTES, ROBOTS, refused, stated_delay

    of_host: dict[str, list[str]] = defaultdict(list)
    for url in (url for item in items for url in item.keys):
        of_host[host_of(url)].append(url)
    of_host.pop("", None)
    since = datetime.now(UTC) - timedelta(days=days)
    asked = [f"{host}{file}" for host in sorted(of_host.keys() - read_hosts(session.lake, since)) for file in FILES]
    portions = [tuple(asked[n : n + PORTION]) for n in range(0, len(asked), PORTION)]
    reads = [WorkItem(text_id("opt-outs", session.writer.run_id, str(since), *each), each) for each in portions]
    session.work("read opt-outs", reads, ReadOptOuts(replace(fetcher, max_bytes=MOST_BYTES, is_for_rules=True)))
    why, delays = dict[str, str](), dict[str, float]()
    for row in opt_outs(session.lake):
        urls, file, said = of_host.get(row["host"], []), row["file"], row["said"]
        if row["outcome"] == "unreachable" and file == ROBOTS:
            why |= dict.fromkeys(urls, "robots.txt could not be read, which refuses all (RFC 9309)")
        elif urls and said:
            why |= dict.fromkeys(refused(file, said, urls), f"{file} forbids it")
            delay = stated_delay(said) if file == ROBOTS else 0
            if delay > MOST_DELAY:
                why |= dict.fromkeys(urls, f"it asks for {delay:g} s between requests; at most {MOST_DELAY} are kept")
            elif delay:
                delays[row["host"].partition("//")[2]] = delay
    return why, delays


def split_slow(items: Sequence[WorkItem], delays: dict[str, float]) -> tuple[list[WorkItem], list[WorkItem]]:
    """Divide items into those of hosts without a stated delay, and small ones of the others, MOST_SECONDS long."""
    quick, slow = [], []
    for item in items:
        waits = {url: delay for url in item.keys if (delay := delays.get(host_of(url).partition("//")[2]))}
        rest = [url for url in item.keys if url not in waits]
        quick += [item.only(rest) if waits else item] if rest else []
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
        host = host_of(url)
        return {"host": host, "file": url.removeprefix(host), "url": url, "outcome": outcome, "http_status": status,
                "said": printable(said), "read_at": datetime.now(UTC)}  # fmt: skip
