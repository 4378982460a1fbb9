"""Repair a lake: make lost rows again or pending, then take damaged and doubled files out of the catalog.

No file of pages leaves the catalog before its rows are committed anew, so that a killed repair leaves the damage for
the next one to find. A file of computed rows leaves first, because no run can read a table beside it; `partitions` then
records more rows than there are. Files that left stay on disk for SNAPSHOT_SECONDS, unless rows are removed for good.
"""

import uuid
from collections.abc import Collection, Iterator, Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep import forgotten_rows, recorded_files
from pairmill.catalog.upkeep.lost_pages import lost_pages
from pairmill.catalog.upkeep.lost_rows import HOMES, OF_A_PAGE, Damage, Redone, redone_by
from pairmill.catalog.upkeep.recorded_files import rows_of_their_own, still_named
from pairmill.catalog.upkeep.retired_files import retire
from pairmill.catalog.write import lease
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.sweep import SNAPSHOT_SECONDS
from pairmill.tasks.upkeep.lake_check import Show, of_rows
from pairmill.tasks.upkeep.reread_pages import reread_pages

WAIT_SECONDS = 60.0
_REMEDY = "put the file or its source back, or give these rows up: --lose-rows"


def repair(
    lake: Lake, damages: Sequence[Damage], show: Show, deep: bool = False, lose_rows: bool = False
) -> Iterator[str]:
    """Repair what can be repaired, under the lease; yield a line for each thing done or refused.

    Rows are counted again first: a run may have changed what a check without the lease has found. Where rows would be
    lost for good, everything stays as it is unless ``lose_rows``. Each step is a transaction of its own.

    Raises:
        LeaseHeld: Another process writes to the lake.
        LeaseLost: Another process took the lease over.
    """
    with lease.writing(lake, uuid.uuid4().hex, "repair", WAIT_SECONDS) as writer:
        recorded_files.list_files(lake)
        named = still_named(lake, [number for damage in damages for number in damage.ids])
        of_files = [each for each in damages if each.trouble in ("gone", "damaged") and named.issuperset(each.ids)]
        todo = [each for each in (*of_files, *of_rows(lake, of_files, deep, show)) if each.is_repairable]
        refused, lines = _without_losses(lake, todo, lose_rows)
        yield from lines
        todo = [each for each in todo if each not in refused]
        if any(damage.trouble == "doubled" for damage in todo):
            forgotten_rows.drop_repeated_partitions(lake)
        of_pages = [each for each in todo if each.trouble != "doubled" and each.table in {*OF_A_PAGE, *HOMES}]
        others = [each for each in todo if each not in of_pages]
        yield from _taken_out(writer, [each for each in others if each.trouble != "counts"])
        yield from _forgotten(writer, others)
        yield from _restored(writer, of_pages, show, lose_rows)


def _without_losses(lake: Lake, todo: Sequence[Damage], lose_rows: bool) -> tuple[list[Damage], list[str]]:
    """Return the damages whose repair would lose rows that only these files have, and a line for each."""
    if lose_rows:
        return [], []
    out = {number for damage in todo if damage.trouble == "doubled" for number in damage.ids}
    refused, lines = [], []
    for damage in todo:
        n, what = 0, ""
        if damage.trouble == "doubled" and damage.ids:
            n, what = rows_of_their_own(lake, damage.table, damage.ids, out), "rows that no other file has"
        elif damage.table == "fetches":
            n, what = forgotten_rows.fetched_pictures(lake, damage.path), "pictures that were fetched with it"
        if n:
            refused.append(damage)
            lines.append(f"left as it is: {damage.path or damage.table}: {n:,} {what} would be lost; {_REMEDY}")
    return refused, lines


def _taken_out(writer: Writer, damages: Sequence[Damage]) -> Iterator[str]:
    """Take files out of the catalog, and say until when they are on disk."""
    if ids := sorted({number for damage in damages for number in damage.ids}):
        retire(writer, ids)
        recorded_files.list_files(writer.lake)
        writer.lake.reload_tables()  # the damaged files are not verified any more
        days = SNAPSHOT_SECONDS // 86_400
        yield (
            f"removed {len(ids):,} files from the catalog; on disk they stay until a maintenance after {days} days, "
            "or a removal of rows"
        )


def _forgotten(writer: Writer, todo: Sequence[Damage]) -> Iterator[str]:
    """Make lost scores and readings pending."""
    lake = writer.lake
    forgotten_rows.count_again(lake, [d.path for d in todo if d.trouble == "counts" and d.ids])
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


def _restored(writer: Writer, damages: Sequence[Damage], show: Show, lose_rows: bool) -> Iterator[str]:
    """Read lost pages again and take their damaged files out; then compute lost home shards from the pages."""
    pages = [damage for damage in damages if damage.table in OF_A_PAGE]
    if tables := sorted({damage.table for damage in pages}):
        bad = [number for damage in pages for number in damage.ids]
        found = lost_pages(writer.lake, tables, {damage.path for damage in pages} - {""}, bad)
        lost = read = 0
        kept: set[str] = set()
        for n, each in enumerate(reread_pages(writer, found, bad, lose_rows), 1):
            lost, read, kept = lost + each.lost, read + each.found, kept | set(each.kept)
            show(f"{n:,} shards read again")
            if each.why:
                verb = "lost" if lose_rows else "left as it is"
                remedy = "" if lose_rows else f"; {_REMEDY}"
                rows = f"{each.lost - each.found:,} of {each.lost:,} rows"
                yield f"{verb}: shard {each.shard}: {rows}: {each.why}{remedy}"
        if found:
            yield f"read {len(found):,} shards again: {read:,} of {lost:,} rows of {', '.join(tables)}"
        replaced = _replaced(pages, kept, {each.path for shard in found for each in shard.partitions})
        yield from _taken_out(writer, replaced)
        pages = [damage for damage in pages if damage not in replaced]
    for table, (source, _) in HOMES.items():
        mine = [damage for damage in damages if damage.table == table]
        if mine and source not in {damage.table for damage in pages}:  # else they are computed by the next repair
            bad = [number for damage in mine for number in damage.ids]
            yield f"{table}: {forgotten_rows.restore_homes(writer.lake, table, bad):,} rows computed"
            yield from _taken_out(writer, mine)


def _replaced(damages: Sequence[Damage], kept: Collection[str], lost: Collection[str]) -> list[Damage]:
    """Return the damages of files all of whose rows were committed anew.

    A file with the path of no partition was merged of several: it stays if any row does, which may be one of it.
    """
    if not kept:
        return list(damages)
    return [damage for damage in damages if damage.path in lost and damage.path not in kept]


def _tables(todo: Sequence[Damage], how: Redone) -> list[str]:
    """Return the damaged tables whose lost rows are made again in this way."""
    return sorted({damage.table for damage in todo if redone_by(damage.table) == how})
