"""What a lake holds in all: how much of what people ask for first, and the places that it came from."""

from catalog.lake.lake import Lake

COUNTED = ("documents", "images", "sentences", "quarantine")


def counts(lake: Lake) -> dict[str, int]:
    """Rows by table."""
    return {table: lake.query(f"SELECT count(*) FROM {table}")[0][0] for table in COUNTED}


def sources(lake: Lake) -> list[str]:
    """Every source of which something was read, sorted."""
    return [row[0] for row in lake.query("SELECT DISTINCT source FROM inputs ORDER BY source")]
