"""Count a lake's documents, images, sentences and quarantined items."""

from pairmill.catalog.lake.lake import Lake

COUNTED = ("documents", "images", "sentences", "quarantine")


def counts(lake: Lake) -> dict[str, int]:
    """Return table -> number of rows, for the tables COUNTED."""
    return {table: lake.query(f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED}
