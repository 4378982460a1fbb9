"""Write catalog/lake/empty_catalog.sqlite.gz, a copy of which starts a new lake: ``python -m infra.empty_catalog``.

Run it after adding a migration; tests/catalog/test_schema.py fails when it is due.
"""

import gzip
import tempfile
from pathlib import Path

from pairmill.catalog.lake import new_lake
from pairmill.catalog.lake.opening import create_or_open


def by_migrations(folder: Path) -> Path:
    """Create an empty lake at ``folder`` by its migrations alone; return the path of its catalog."""
    shipped, new_lake.SHIPPED = new_lake.SHIPPED, folder / "nothing"
    try:
        with create_or_open(folder) as lake:
            lake.metadata.write("UPDATE ducklake_metadata SET value = '/' WHERE key = 'data_path' AND scope IS NULL")
    finally:
        new_lake.SHIPPED = shipped
    return folder / "catalog.sqlite"


def main() -> None:
    """Build the catalog and write it compressed."""
    with tempfile.TemporaryDirectory() as folder:
        made = by_migrations(Path(folder) / "lake").read_bytes()
    new_lake.SHIPPED.write_bytes(gzip.compress(made, mtime=0))
    print(f"{new_lake.SHIPPED.name}: {len(made):,} bytes, {new_lake.SHIPPED.stat().st_size:,} compressed")


if __name__ == "__main__":
    main()
