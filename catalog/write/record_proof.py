"""Record a proof of a dataset version in ``proofs``, a row a line."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from pairmill.catalog.lake.lake import Lake


def record_proof(
    lake: Lake, dataset: tuple[str, int], head: tuple[str, int, int, int, datetime], lines: Iterable[Sequence[Any]]
) -> None:
    """Insert the lines of a proof. Requires the lease.

    ``head``: judge, seeds, pairs of the pool, kinds, time; a line is the fields of `ProofLine` in order.
    """
    rows = [[*dataset, *head, place, *line] for place, line in enumerate(lines)]

    def body() -> None:
        for row in rows:
            lake.execute(f"INSERT INTO proofs VALUES ({', '.join('?' * len(row))})", row)

    lake.retrying(body)
