"""Hash the bytes of all stored pictures of a file, and of those that the file only refers to."""

from collections import Counter
from collections.abc import Iterator

import pyarrow.parquet as pq

from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.upkeep.lost_rows import Damage
from pairmill.catalog.upkeep.recorded_files import RecordedFile
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items.payloads import COLUMNS, bytes_of_rows
from pairmill.tasks.run.items.rows import opened

# Pictures in memory at once: 6 MB at 100 KB each, 800 MB if all have the most bytes that a recipe usually allows.
AT_ONCE = 16


def damaged_payloads(data_path: str, file: RecordedFile) -> Iterator[Damage]:
    """Yield the damage of one file of ``payloads``: bytes with another hash, and pictures missing from their source."""
    found: Counter[str] = Counter()
    example = ""
    try:
        with opened(data_path + file.path) as handle:
            for batch in pq.ParquetFile(handle).iter_batches(AT_ONCE, columns=COLUMNS):
                for data in bytes_of_rows(batch.to_pylist(), file.path):
                    if isinstance(data, Fault | SourceError):
                        found[data.reason if isinstance(data, Fault) else "source"] += 1
                        example = example or (data.detail if isinstance(data, Fault) else str(data))
    except Damaged as error:
        yield Damage(
            "damaged", file.table, f"the file cannot be read ({error.__cause__})", file.rows, file.path, (file.id,)
        )
        return
    if n := found["damaged"]:
        yield Damage("damaged", file.table, f"{n:,} pictures have another hash ({example})", n, file.path, (file.id,))
    if n := found["missing"] + found["source"]:
        yield Damage("source", file.table, f"{n:,} pictures are not in their source any more ({example})", n, file.path)
