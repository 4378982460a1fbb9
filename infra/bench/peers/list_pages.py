"""List a source of synthetic pages and cut it into shards: ``list_pages MODE PAGES LAKE``; print the MB of growth.

Modes: ``names`` holds names, sizes and etags alone; ``source`` lists units; ``shards`` does what ingest does; ``whole``
does what ingest did before: it holds every unit, row, key and work item at once.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa

from infra.bench.measure import peak_mb
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents
from pairmill.catalog.recipe.parts import Ingest
from pairmill.catalog.terms.ids import text_id
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.fault import Fault
from pairmill.ops.read.declared_formats import formats
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.tree import LocalTree
from pairmill.ops.read.source import Source, row_of
from pairmill.tasks.collect.ingest import first_readers, new_rounds, reader_names, shard_item
from pairmill.tasks.run.session import Session


class MadeTree(LocalTree):
    """Folder of ``n`` pages that is not on disk, a thousand pages a subfolder."""

    n = 0

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """Add all pages to ``files``; return no faults."""
        files.add(self.entries())
        return iter(())

    def entries(self) -> Iterator[Entry]:
        """Yield the entries of all pages, of 30,000 bytes each."""
        paths = (f"pages/{n // 1000:06}/{n:09}.html" for n in range(self.n))
        return (Entry(path, 30_000, text_id(path)) for path in paths)


def held_whole(source: Source) -> int:
    """Return the number of shards, made while everything is held in memory."""
    rows = [(*row_of(found)[:3], found) for found in source.listed()]
    uris, sizes, etags, _ = zip(*rows, strict=True)
    table = pa.table({"uri": uris, "size": sizes, "etag": etags})
    new = {row: 0 for row in zip(*(column.to_pylist() for column in table.columns), strict=True)}
    shards = [[row[3] for row in rows[first : first + 1000] if row[:3] in new] for first in range(0, len(rows), 1000)]
    return len([shard_item(shard, source.uri) for shard in shards])


def shards(source: Source, lake: str) -> int:
    """Return the number of shards, made as ingest makes them."""
    with create_or_open(lake) as opened:
        contents.list_units(
            opened, map(row_of, source.listed()), reader_names(Ingest.model_validate({})), first_readers("en")
        )
        session = cast(Session, cast(Any, SimpleNamespace(lake=opened, recipe=load_recipe("30m"))))
        return sum(len(items) for items in new_rounds(session, source))


if __name__ == "__main__":
    mode, n, place = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    MadeTree.n = n
    pages = Source("/made", MadeTree("/made"), tuple(formats()))
    before = peak_mb()
    if mode == "names":
        kept = list(MadeTree("/made").entries())
    elif mode == "source":
        assert sum(1 for _ in pages.listed()) == n
    else:
        assert (shards(pages, place) if mode == "shards" else held_whole(pages)) > 0
    print(f"{peak_mb() - before:.0f}")
