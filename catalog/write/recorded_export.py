"""Record a finished export in ``exports``."""

from collections.abc import Callable
from datetime import UTC, datetime

from pairmill.catalog.lake.lake import Lake


def record_export(
    lake: Lake,
    check: Callable[[], None],
    version: tuple[str, int],
    format: str,
    uri: str,
    files: int,
    rows: int,
    n_bytes: int,
) -> None:
    """Insert a row into ``exports`` for an export of ``version`` (dataset, number); replace an earlier row of ``uri``.

    ``check`` runs in the same transaction, which it aborts by raising. The caller holds the lease.
    """

    def body() -> None:
        check()
        lake.execute("DELETE FROM exports WHERE uri = ?", (uri,))
        row = (*version, format, uri, files, rows, n_bytes, datetime.now(UTC))
        lake.execute("INSERT INTO exports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    lake.retrying(body)
