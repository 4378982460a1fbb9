"""Write to a lake under its lease, which admits one writing flow at a time.

The row lives in the metadata database beside DuckLake's own tables (view `lake.lease`), not in a DuckLake table, for
two reasons. Taking it must be atomic: there the database itself refuses the second of two takers, whereas two DuckLake
transactions that insert need not conflict. And a heartbeat must cost nothing: in DuckLake each one would be a
snapshot, 4,320 a day.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import hold, holder_of, show_waiting
from pairmill.catalog.terms.error import LeaseLost
from pairmill.catalog.write.commit import Committed, Manifest, commit
from pairmill.catalog.write.scorer import Scorer, register


class Writer:
    """The holder of a lake's lease: allocates commit numbers and commits partitions.

    The holder alone allocates numbers, so it counts in memory; a number's row in ``commits``, and the scorers that wait
    to be registered, are part of the next transaction: of 34 numbers and 23 registrations of a first run none has a
    transaction (40 ms) of its own. A number of which nothing is committed is given to the next run again.
    """

    def __init__(self, lake: Lake, run_id: str, token: str) -> None:
        self.lake = lake
        self.run_id = run_id
        self._token = token
        self._committed = Committed(lake)
        self._last: int | None = None
        self._begun: dict[int, tuple] = {}  # rows of ``commits`` that are not written yet, by number
        self._scorers: dict[str, tuple[Scorer, int]] = {}  # to be registered, by digest
        self._written: tuple[list[int], list[str]] = ([], [])

    def begin(self, step: str, scorers: Sequence[Scorer] = ()) -> int:
        """Allocate the commit number that the step's workers write into their rows, strictly increasing; the next
        transaction records it and registers ``scorers``.

        Raises LeaseLost when another process took the lease over.
        """
        self.check()
        before = self._newest() if self._last is None else self._last
        self._last = number = before + 1
        self._begun[number] = (number, self.run_id, step, datetime.now(UTC))
        for scorer in scorers:
            self._scorers.setdefault(scorer.digest, (scorer, number))
        return number

    def commit(self, manifests: Sequence[Manifest]) -> int:
        """Commit finished partitions; see catalog.write.commit. Returns how many were new."""
        return commit(self.lake, manifests, self._committed)

    def show_waiting(self, text: str) -> None:
        """Say to who reads the lake what this run waits for, '' when it works again; no snapshot, as a heartbeat."""
        show_waiting(self.lake.metadata, self._token, text)

    def end_transaction(self) -> None:
        """Record what was begun, and check the lease last: the lake's guard.

        The body may have taken minutes, or the machine may have been suspended. A commit between the check and its end
        conflicts with a takeover (see `writing`). Raises LeaseLost.
        """
        begun, scorers = sorted(self._begun), list(self._scorers.values())
        if begun:
            if self._newest() >= begun[0]:
                raise self._lost("commit numbers that it gave out are another's")
            rows = zip(*(self._begun[number] for number in begun), strict=True)
            columns = ("commit", "run_id", "step", "at")
            self.lake.insert("commits", pa.table(dict(zip(columns, map(list, rows), strict=True))))
        if scorers:
            register(self.lake, scorers)
        self._written = (begun, [scorer.digest for scorer, _ in scorers])
        self.check()

    def settle(self) -> None:
        """Forget what the transaction that was just committed has recorded."""
        for number in self._written[0]:
            del self._begun[number]
        for digest in self._written[1]:
            del self._scorers[digest]
        self._written = ([], [])

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease."""
        held = holder_of(self.lake.metadata)
        if held is None or held.token != self._token:
            raise self._lost(f"{held} took it over" if held else "it expired")

    def _newest(self) -> int:
        return self.lake.query('SELECT coalesce(max("commit"), 0) FROM commits')[0][0]

    def _lost(self, why: str) -> LeaseLost:
        return LeaseLost(
            f"lake '{self.lake.uri}': this run ({self.run_id}) no longer holds the lease: {why}. Nothing more is "
            "written by it; run it again to go on from what was committed."
        )


@contextmanager
def writing(lake: Lake, run_id: str, purpose: str, wait_seconds: float = 0.0) -> Iterator[Writer]:
    """Hold the lake's lease for the body. Raises LeaseHeld when another still holds it after ``wait_seconds``."""
    with hold(lake.metadata, lake.uri, run_id, purpose, wait_seconds) as (token, took_over):
        if took_over:
            # A comment alters the table, so a commit that the former holder has under way conflicts.
            lake.execute(f"COMMENT ON TABLE partitions IS 'lease {token}'")
        writer = Writer(lake, run_id, token)
        lake.guard, lake.settled = writer.end_transaction, writer.settle
        try:
            yield writer
        finally:
            lake.guard = lake.settled = lambda: None
