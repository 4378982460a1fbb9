"""Record a finished export in ``exports``."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pairmill.catalog.lake.lake import Lake


def record_export(
    lake: Lake,
    check: Callable[[], None],
    rows: Mapping[tuple[str, int], int],
    format: str,
    uri: str,
    files: int,
    n_bytes: int,
) -> None:
    """Insert a row into ``exports`` for each version of an export; replace earlier rows of ``uri``.

    ``rows`` has the number of rows by (dataset, version); several are a mixture, whose files hold rows of all.

    ``check`` runs in the same transaction, which it aborts by raising. The caller holds the lease.
    """

    def body() -> None:
        check()
        lake.execute("DELETE FROM exports WHERE uri = ?", (uri,))
        for version, n in rows.items():
            row = (*version, format, uri, files, n, n_bytes, datetime.now(UTC))
            lake.execute("INSERT INTO exports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    lake.retrying(body)
