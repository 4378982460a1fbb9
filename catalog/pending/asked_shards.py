"""Record the shards in which a work list has nothing pending, so that what is done is not joined anew.

A *work list* is identified by the SQL of its eligible keys (rules, thresholds, scorers) and the scorers that it fills.
A shard is finished when every key that the list asked for has its row. Its *mark* is a hash of the shard's rows in
``partitions``, of all tables that the list reads or fills: each commit, removal, retry, import or repair changes it,
and the shard is asked again. What changes a shard from outside is found by commit number: a document that is gone or
back, and a new occurrence of a content at home here, if it was gone or a rule reads occurrences (an address, an alt
text, ``repeats``: then new pages open most shards). So a kill may lose a record, but no record can be wrong.

The records are a table of the metadata database, as those of `catalog.write.finished`: outside DuckLake's snapshots,
in each copy of the catalog; without them, all is joined once more. A list takes 8 bytes a shard, 1 MB for RealSyn's
118,000. Each listing reads `partitions` once; with new rows in the lake, the commit numbers of all contents.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.metadata import ASKED, ASKED_TABLE
from pairmill.catalog.pending.item import WorkItem

# Contents from which a record pays: a join of fewer takes no longer than the statements of a record.
WORTH = 100_000
KEPT = 64  # work lists, the last that were recorded
# What makes rows eligible without a row in their shard, by a word of the SQL that reads it: a removal takes occurrences
# of a sentence that repeats less often then, and people keep pictures whatever a rule says.
OUTSIDE = {
    "repeats": "SELECT count(*) FROM takedowns",
    "acts_kept": "SELECT count(*), bit_xor(hash(sha256)) FROM temp.acts_kept",
}


class AskedShards:
    """The shards of one work list: those to ask, and the record of the finished ones.

    ``fills`` are (table, scorer's digest), ``reads`` the tables of the scores that rules read, ``rows`` the SQL of the
    eligible keys, ``by_occurrence`` whether they depend on more than the content. ``names`` are the table of contents,
    its key, and the table of their payloads.
    """

    def __init__(
        self, lake: Lake, fills: Sequence[tuple[str, str]], reads: set[str], rows: str, by_occurrence: bool,
        names: tuple[str, str, str],
    ) -> None:  # fmt: skip
        self._lake = lake
        self._content, self._key, payload = names
        self._by_occurrence = by_occurrence
        self._fills = [table for table, _ in fills]
        self._asks = fills, rows
        filled = [f"(\"table\" = '{table}' AND scorer = '{scorer}')" for table, scorer in fills]
        done = ", ".join(f"coalesce(sum(rows) FILTER {each}, 0)::BIGINT" for each in filled)
        read = ", ".join(f"'{table}'" for table in sorted({payload, *reads}))
        of_payload = f"\"table\" = '{payload}'"
        self._states = (
            f'SELECT shard, hash(shard, bit_xor(hash("table", partition_id, rows))) AS mark, [{done}] AS done '
            f'FROM partitions WHERE "table" IN ({read}) OR {" OR ".join(filled)} GROUP BY shard '
            f"HAVING bool_or({of_payload})"
        )
        self._marks: set[int] = set()  # of the finished shards
        self._id = ""  # of the work list, set by `_load`
        self._commit = -1  # the newest one whose rows in other shards were looked at
        self._unsaved = 0  # contents of the shards that were finished since the record was saved
        self._done: dict[str, list[int]] = {}  # rows of each filled table, of the open shards
        self._is_large = lake.largest >= WORTH

    def open_shards(self) -> list[tuple[str, int]]:
        """Return (shard, contents) of the shards that are not finished, sorted by shard."""
        counted = f"SELECT shard, count(*) AS n FROM {self._content} "
        if self._is_large:
            touched = self._load()
            states = self._lake.query(self._states)
            self._marks &= {mark for shard, mark, _ in states if shard not in touched}
            states = [state for state in states if state[1] not in self._marks]
            shards = [shard for shard, *_ in states]
            sql = f"{counted} WHERE shard IN (SELECT unnest(?)) GROUP BY shard"
            counts = Counter(dict(self._lake.query(sql, (shards,)) if shards else ()))
            states = [(*state, counts[state[0]]) for state in states]
        else:
            states = self._lake.query(
                f"SELECT s.*, coalesce(n, 0) FROM ({self._states}) s LEFT JOIN ({counted} GROUP BY shard) USING (shard)"
            )
        self._done = {shard: done for shard, _, done, n in states if min(done) < n}
        self._finish({mark: n for _, mark, done, n in states if min(done) >= n})
        return sorted((shard, n) for shard, _, done, n in states if min(done) < n)

    def end_round(self, contents: Mapping[str, int], items: Sequence[WorkItem]) -> None:
        """Record the shards of a round, with their contents, as finished if all ``items`` there have got their rows."""
        if not self._is_large or self._lake.read_only:
            return
        asked: Counter[tuple[str, str]] = Counter()
        for item in items:
            asked.update({(item.shard, table): len(item.keys) for table in item.tables})
        finished = {}
        for shard, mark, done in self._lake.query(self._states):
            if shard in contents:
                got = [now - before for now, before in zip(done, self._done[shard], strict=True)]
                if got == [asked[shard, table] for table in self._fills]:
                    finished[mark] = contents[shard]
        self._finish(finished)

    def _finish(self, contents: Mapping[int, int]) -> None:
        """Add marks of finished shards, with their numbers of contents; save the record once that pays."""
        self._marks |= contents.keys()
        self._unsaved += sum(contents.values())
        if not self._is_large or self._lake.read_only or self._unsaved < WORTH:
            return
        record(self._lake, self._id, self._commit, b"".join(mark.to_bytes(8, "little") for mark in sorted(self._marks)))
        self._unsaved = 0

    def _load(self) -> set[str]:
        """Load the record; return the shards that rows of other shards have touched since it was saved."""
        occurrences = "images" if self._key == "sha256" else "sentences"
        tables = (self._content, occurrences, "superseded")
        newest = [snapshot.largest(self._lake.unchecked, table).get("commit", -1) for table in tables]
        self._commit = max(map(int, newest))
        self._id = list_id(self._lake, *self._asks)
        if (found := recorded(self._lake, self._id)) is None:
            return set()
        before, marks = found
        self._marks = {int.from_bytes(marks[at : at + 8], "little") for at in range(0, len(marks), 8)}
        if before >= self._commit:
            return set()
        since = f'"commit" > {before}'
        shown = f"SELECT {self._key} FROM {occurrences} WHERE "
        again = f"{shown}{since} OR document_id IN (SELECT document_id FROM superseded WHERE {since})"
        if not self._by_occurrence:  # a further occurrence matters only to what was gone
            again = f"{shown}document_id IN (SELECT document_id FROM superseded) AND {self._key} IN ({again})"
        sql = f"SELECT DISTINCT shard FROM {self._content} WHERE {since}"
        if self._by_occurrence or int(newest[2]) >= 0:
            sql += f" OR {self._key} IN ({again})"
        return {shard for (shard,) in self._lake.query(sql)}


def list_id(lake: Lake, fills: Sequence[tuple[str, str]], rows: str) -> str:
    """Return 32 hex digits that identify a work list: a hash of what it fills, its SQL, and results of OUTSIDE."""
    outside = [lake.query(sql) for word, sql in OUTSIDE.items() if word in rows]
    return hashlib.sha256(repr((fills, rows, outside)).encode()).hexdigest()[:32]


def recorded(lake: Lake, work_list: str) -> tuple[int, bytes] | None:
    """Return (commit, marks) as `record` stored them for a work list; None if it has no record."""
    sql = f"SELECT \"commit\", marks FROM {ASKED} WHERE list = '{work_list}'"
    found = lake.metadata.read(sql) if lake.metadata.has(ASKED) else []
    return found[0] if found else None


def record(lake: Lake, work_list: str, commit: int, marks: bytes) -> None:
    """Store up to which ``commit`` a work list is finished, and its ``marks``; drop all but the KEPT newest records."""
    import pyarrow as pa

    row = {"list": work_list, "commit": commit, "marks": marks, "at": datetime.now(UTC).isoformat()}
    lake.metadata.write(ASKED_TABLE)
    lake.metadata.replace(ASKED, "list", pa.Table.from_pylist([row]))
    newest = f'SELECT list FROM {ASKED} ORDER BY "at" DESC LIMIT {KEPT}'
    lake.metadata.write(f"DELETE FROM {ASKED} WHERE list NOT IN ({newest})")
