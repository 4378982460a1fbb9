"""Write to a lake under its lease, which admits one writing flow at a time.

The row lives in the metadata database beside DuckLake's own tables (view `lake.lease`), not in a DuckLake table, for
two reasons. Taking it must be atomic: there the database itself refuses the second of two takers, whereas two DuckLake
transactions that insert need not conflict. And a heartbeat must cost nothing: in DuckLake each one would be a
snapshot, 4,320 a day.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from catalog.lake.lake import Lake
from catalog.lake.lease_row import hold, holder_of, show_waiting
from catalog.terms.error import LeaseLost
from catalog.write.commit import Committed, Manifest, commit


class Writer:
    """The holder of a lake's lease: allocates commit numbers and commits partitions."""

    def __init__(self, lake: Lake, run_id: str, token: str) -> None:
        self.lake = lake
        self.run_id = run_id
        self._token = token
        self._committed = Committed(lake)

    def begin(self, step: str) -> int:
        """Allocate the commit number that the step's workers write into their rows; strictly increasing.

        Raises LeaseLost when another process took the lease over.
        """

        def allocate() -> int:
            number = self.lake.query('SELECT coalesce(max("commit"), 0) + 1 FROM commits')[0][0]
            self.lake.execute("INSERT INTO commits VALUES (?, ?, ?, ?)", (number, self.run_id, step, datetime.now(UTC)))
            return number

        return self.lake.retrying(allocate)

    def commit(self, manifests: Sequence[Manifest]) -> int:
        """Commit finished partitions; see catalog.write.commit. Returns how many were new."""
        return commit(self.lake, manifests, self._committed)

    def show_waiting(self, text: str) -> None:
        """Say to who reads the lake what this run waits for, '' when it works again; no snapshot, as a heartbeat."""
        show_waiting(self.lake.metadata, self._token, text)

    def check(self) -> None:
        """Raise LeaseLost unless this process still holds the lease.

        Called at the end of each transaction (the lake's guard): its body may have taken minutes, or the machine may
        have been suspended. A commit between this check and its end conflicts with a takeover (see `writing`).
        """
        held = holder_of(self.lake.metadata)
        if held is None or held.token != self._token:
            by = f"{held} took it over" if held else "it expired"
            raise LeaseLost(
                f"lake '{self.lake.uri}': this run ({self.run_id}) no longer holds the lease: {by}. Nothing more is "
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
        lake.guard = writer.check
        try:
            yield writer
        finally:
            lake.guard = lambda: None
