"""Repair a lake: remove what is damaged or doubled, read lost pages again, make lost scores pending."""

import uuid
from collections.abc import Iterator, Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep import forgotten_rows
from pairmill.catalog.upkeep.lost_pages import lost_pages
from pairmill.catalog.upkeep.lost_rows import Damage, Redone, redone_by
from pairmill.catalog.upkeep.retired_files import retire
from pairmill.catalog.write import lease
from pairmill.catalog.write.lease import Writer
from pairmill.tasks.upkeep.lake_check import Show
from pairmill.tasks.upkeep.reread_pages import reread_pages

WAIT_SECONDS = 60.0


def repair(lake: Lake, damages: Sequence[Damage], show: Show) -> Iterator[str]:
    """Repair what can be repaired, under the lease; yield a line for each thing done.

    Each step is a transaction of its own, and a killed repair leaves damage that the next check finds: files that are
    out of the catalog, of partitions that are still recorded.

    Raises:
        LeaseHeld: Another process writes to the lake.
        LeaseLost: Another process took the lease over.
    """
    todo = [damage for damage in damages if damage.is_repairable]
    with lease.writing(lake, uuid.uuid4().hex, "repair", WAIT_SECONDS) as writer:
        if any(damage.trouble == "doubled" for damage in todo):
            forgotten_rows.drop_repeated_partitions(lake)
        if ids := sorted({number for damage in todo for number in damage.ids}):
            retire(writer, ids)
            lake.reload_tables()  # the damaged files are not verified any more
            yield f"removed {len(ids):,} files from the catalog"
        yield from _forgotten(writer, todo)
        yield from _restored(writer, todo, show)


def _forgotten(writer: Writer, todo: Sequence[Damage]) -> Iterator[str]:
    """Make lost scores and readings pending."""
    lake = writer.lake
    for table in _tables(todo, "run"):
        if table in ("inputs", "fetches"):
            forgotten_rows.forget_readings(lake, table)
            yield f"{table}: the next run reads or fetches again what is lost"
            continue
        twice = [(d.shard, d.scorer) for d in todo if d.table == table and d.trouble == "doubled" and not d.ids]
        forgotten_rows.forget_shard_scores(lake, table, [(a, b) for a, b in twice if a is not None and b is not None])
        if n := forgotten_rows.forget_scores(lake, table, writer.begin("repair")):
            yield f"{table}: the next run does {n:,} rows again"
    for table in _tables(todo, "whole"):
        scorers = [damage.scorer for damage in todo if damage.table == table and damage.scorer]
        if n := len(forgotten_rows.forget_whole(lake, table, scorers)):
            yield f"{table}: the next run does again what {n} scorers computed over all rows"


def _restored(writer: Writer, todo: Sequence[Damage], show: Show) -> Iterator[str]:
    """Read lost pages again, then compute lost home shards from them."""
    if tables := _tables(todo, "source"):
        lost = found = shards = 0
        paths = {damage.path for damage in todo if damage.path and damage.trouble != "doubled"}
        reasons: set[str] = set()
        for each in reread_pages(writer, lost_pages(writer.lake, tables, paths)):
            lost, found, shards = lost + each.lost, found + each.found, shards + 1
            reasons |= {each.why} - {""}
            show(f"{shards:,} shards read again")
        yield f"read {shards:,} shards again: {found:,} of {lost:,} rows of {', '.join(tables)}"
        yield from sorted(reasons)
    for table in _tables(todo, "home"):
        yield f"{table}: {forgotten_rows.restore_homes(writer.lake, table):,} rows computed"


def _tables(todo: Sequence[Damage], how: Redone) -> list[str]:
    """Return the damaged tables whose lost rows are made again in this way."""
    return sorted({damage.table for damage in todo if redone_by(damage.table) == how})
