"""Repair a lake: read lost rows again or make them pending, then take damaged and doubled files out of the catalog.

No file of pages leaves the catalog before its rows are committed anew, so that after a kill the next repair finds the
damage. A file of computed rows leaves first, because no run can read a table with a damaged file; `partitions` then
records more rows than there are. Removed files stay on disk for SNAPSHOT_SECONDS, unless rows are removed for good.
"""

import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep import forgotten_rows, recorded_files
from pairmill.catalog.upkeep.damages import HOMES, OF_A_PAGE, Damage, Redone, redone_by
from pairmill.catalog.upkeep.forgotten_rows import LostPages, drop_repeated, forget_partitions, lost_pages
from pairmill.catalog.upkeep.recorded_files import retire, rows_of_their_own, still_named
from pairmill.catalog.write import lease, runs
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.sweep import SNAPSHOT_SECONDS
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Unit
from pairmill.ops.read.places.tree import SourceError
from pairmill.ops.read.source import Source, open_source, row_of
from pairmill.tasks.collect.ingest import IngestSettings, IngestUnits, settings_for, shard_item
from pairmill.tasks.collect.listing import listed
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from pairmill.tasks.upkeep.lake_check import Show, check_rows

WAIT_SECONDS = 60.0
_REMEDY = "put the file or its source back, or give these rows up: --lose-rows"
Key = tuple[str, int, str]


@dataclass(frozen=True)
class Reread:
    """Result of reading one shard again: numbers of rows lost and found, and why any are missing.

    ``kept``: paths of the shard's damaged partitions if rows are missing, so that nothing was committed; else ().
    """

    shard: str
    lost: int
    found: int
    why: str = ""
    kept: tuple[str, ...] = ()


def repair(
    lake: Lake, damages: Sequence[Damage], show: Show, deep: bool = False, lose_rows: bool = False
) -> Iterator[str]:
    """Repair the damages that can be repaired, under the lease; yield a line for each repair and each refusal.

    Rows are counted again first: a run may have changed them since the check, which holds no lease. A damage whose
    repair would lose rows for good stays unless ``lose_rows``. Each step is a transaction of its own. ``deep`` counts
    as `check_lake` does. Raises LeaseHeld if another process writes to the lake, and LeaseLost if another process took
    the lease over.
    """
    with lease.writing(lake, uuid.uuid4().hex, "repair", WAIT_SECONDS) as writer:
        recorded_files.list_files(lake)
        named = still_named(lake, [number for damage in damages for number in damage.ids])
        of_files = [each for each in damages if each.trouble in ("gone", "damaged") and named.issuperset(each.ids)]
        todo = [each for each in (*of_files, *check_rows(lake, of_files, deep, show)) if each.is_repairable]
        refused, lines = _without_losses(lake, todo, lose_rows)
        yield from lines
        todo = [each for each in todo if each not in refused]
        if any(damage.trouble == "doubled" for damage in todo):
            forgotten_rows.drop_repeated_partitions(lake)
        of_pages = [each for each in todo if each.trouble != "doubled" and each.table in {*OF_A_PAGE, *HOMES}]
        others = [each for each in todo if each not in of_pages]
        yield from _take_out(writer, [each for each in others if each.trouble != "counts"])
        if others:  # a partition that was recorded twice has one file now
            forgotten_rows.drop_repeated_partitions(lake, of_gone=True)
        yield from _make_pending(writer, others, {damage.table for damage in of_files})
        yield from _restore(writer, of_pages, show, lose_rows)


def _without_losses(lake: Lake, todo: Sequence[Damage], lose_rows: bool) -> tuple[list[Damage], list[str]]:
    """Return the damages whose repair would lose rows that only these files have, and a line for each."""
    if lose_rows:
        return [], []
    out = {number for damage in todo if damage.trouble in ("doubled", "gone", "damaged") for number in damage.ids}
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


def _take_out(writer: Writer, damages: Sequence[Damage]) -> Iterator[str]:
    """Take the files of damages out of the catalog; yield a line on how long they stay on disk."""
    if ids := sorted({number for damage in damages for number in damage.ids}):
        retire(writer, ids)
        recorded_files.list_files(writer.lake)
        writer.lake.reload_tables()  # the damaged files are not verified any more
        days = SNAPSHOT_SECONDS // 86_400
        yield (
            f"removed {len(ids):,} files from the catalog; on disk they stay until a maintenance after {days} days, "
            "or a removal of rows"
        )


def _make_pending(writer: Writer, todo: Sequence[Damage], unreadable: Collection[str]) -> Iterator[str]:
    """Make lost scores and readings pending; yield a line for each table. Tables ``unreadable`` have damaged files."""
    lake = writer.lake
    forgotten_rows.count_again(lake, [d.path for d in todo if d.trouble == "counts" and d.ids])
    for table in _tables(todo, "run"):
        if table in ("inputs", "fetches"):
            forgotten_rows.forget_readings(lake, table, unreadable)
            yield f"{table}: the next run reads or fetches again what is lost"
            continue
        mine = [d for d in todo if d.table == table and d.trouble == "doubled" and not d.ids]
        twice = [(d.shard, d.scorer) for d in mine if d.shard is not None and d.scorer is not None]
        if n := forgotten_rows.forget_scores(lake, table, twice, writer.begin("repair")):
            yield f"{table}: the next run does {n:,} rows again"
    for table in _tables(todo, "whole"):
        scorers = [damage.scorer for damage in todo if damage.table == table and damage.scorer]
        if n := len(forgotten_rows.forget_whole(lake, table, scorers)):
            yield f"{table}: the next run does again what {n} scorers computed over all rows"


def _restore(writer: Writer, damages: Sequence[Damage], show: Show, lose_rows: bool) -> Iterator[str]:
    """Read lost pages again and take their damaged files out; then compute lost home shards from the pages.

    Yields a line for each shard that is left or loses rows, and for each sum.
    """
    pages = [damage for damage in damages if damage.table in OF_A_PAGE]
    if tables := sorted({damage.table for damage in pages}):
        bad = [number for damage in pages for number in damage.ids]
        found = lost_pages(writer.lake, tables, {damage.path for damage in pages} - {""}, bad)
        lost = read = 0
        kept: set[str] = set()
        for n, each in enumerate(_reread_pages(writer, found, bad, lose_rows), 1):
            lost, read, kept = lost + each.lost, read + each.found, kept | set(each.kept)
            show(f"{n:,} shards read again")
            if each.why:
                verb = "lost" if lose_rows else "left as it is"
                remedy = "" if lose_rows else f"; {_REMEDY}"
                rows = f"{each.lost - each.found:,} of {each.lost:,} rows"
                yield f"{verb}: shard {each.shard}: {rows}: {each.why}{remedy}"
        if found:
            yield f"read {len(found):,} shards again: {read:,} of {lost:,} rows of {', '.join(tables)}"
        # A merged file has the path of no partition: it stays if any row does, which may be one of it. A worker's file
        # without a partition was replaced by a repair that was killed.
        is_replaced = [(each.is_of_worker or not kept) and each.path not in kept for each in pages]
        replaced = [damage for damage, is_so in zip(pages, is_replaced, strict=True) if is_so]
        yield from _take_out(writer, replaced)
        pages = [damage for damage in pages if damage not in replaced]
    for table, (source, *_) in HOMES.items():
        mine = [damage for damage in damages if damage.table == table]
        if mine and source not in {damage.table for damage in pages}:  # else they are computed by the next repair
            bad = [number for damage in mine for number in damage.ids]
            yield f"{table}: {forgotten_rows.restore_homes(writer.lake, table, bad):,} rows computed"
            yield from _take_out(writer, mine)


def _tables(todo: Sequence[Damage], how: Redone) -> list[str]:
    """Return the damaged tables whose lost rows are restored in the way ``how``."""
    return sorted({damage.table for damage in todo if redone_by(damage.table) == how})


def _reread_pages(writer: Writer, lost: Iterable[LostPages], bad: Collection[int], lose_rows: bool) -> Iterator[Reread]:
    """Read the lost rows again from their sources, shard by shard; yield a result for each shard.

    A unit counts only if its source lists it with its former size and etag. Units that are not on record, or were
    fetched, cannot be read again. A shard of which a row is missing stays as it is unless ``lose_rows``. The files
    ``bad`` are not read. Raises LeaseLost.
    """
    lake = writer.lake

    @cache
    def settings_of(run_id: str) -> IngestSettings:
        return settings_for(lake, runs.recipe_of(lake, run_id) or runs.latest_recipe(lake))

    by_source: dict[str, list[LostPages]] = defaultdict(list)
    for each in lost:
        by_source[each.source].append(each)
    for uri, shards in sorted(by_source.items()):
        units: dict[Key, Unit | Fault] = {}
        why = "its units are not on record"
        if uri:
            units, why = _list_wanted(uri, {unit[:3] for each in shards for unit in each.units})
        for each in shards:
            yield _reread(writer, each, settings_of(each.run_id), units, why, bad, lose_rows)


def _list_wanted(uri: str, wanted: set[Key]) -> tuple[dict[Key, Unit | Fault], str]:
    """List a source; return its units among ``wanted``, and why units may be missing."""
    why = f"they have changed in '{uri}' or are gone from it"
    try:
        listing = ((row_of(each)[:3], each) for each in listed(open_source(uri)))
        return {key: each for key, each in listing if key in wanted}, why
    except SourceError as error:
        return {}, str(error)


def _reread(
    writer: Writer,
    lost: LostPages,
    settings: IngestSettings,
    units: dict[Key, Unit | Fault],
    why: str,
    bad: Collection[int],
    lose_rows: bool,
) -> Reread:
    """Read one shard again, and commit its rows in place of the lost partitions unless rows are missing."""
    lake = writer.lake
    listed_again = [(unit[3], units[unit[:3]]) for unit in lost.units if unit[:3] in units]
    # Another reader makes other documents of a unit.
    found = [each for by, each in listed_again if isinstance(each, Fault) or by in ("", settings.readers[each.format])]
    manifests, counts = _read(writer, lost, found, settings, bad) if found else ([], Counter())
    missing = sum(max(0, each.rows - counts[each.table]) for each in lost.partitions)

    def body() -> None:
        forget_partitions(lake, lost)
        writer.commit(manifests)

    if not missing or lose_rows:
        lake.retrying(body)
    n = len(lost.units) - len(found)
    of_units = f"{n:,} of its {len(lost.units):,} units: {why}" if lost.units else why
    kept = tuple(each.path for each in lost.partitions) if missing and not lose_rows else ()
    rows = sum(each.rows for each in lost.partitions)
    return Reread(lost.shard, rows, rows - missing, of_units if missing else "", kept)


def _read(
    writer: Writer, lost: LostPages, units: list[Unit | Fault], settings: IngestSettings, bad: Collection[int]
) -> tuple[list[Manifest], Counter[str]]:
    """Read units and write the rows of the lost tables; return manifests with the ids of the lost partitions.

    Also return the number of rows read, by table; rows that an earlier reading has are counted, but not written.
    """
    counts: Counter[str] = Counter()
    source: Source = open_source(lost.source)
    item = replace(shard_item(units), shard=lost.shard)
    job = IngestUnits(source, settings)
    wanted = {each.table: each for each in lost.partitions}
    output = Output(writer.lake.data_path, writer.run_id, next(iter(wanted.values())).commit)

    def parts() -> Iterator[Part]:
        for part in job(item):
            if part.table in wanted:
                counts[part.table] += part.rows.num_rows
                yield replace(part, rows=drop_repeated(writer.lake, lost, part.table, part.rows, bad))

    manifests = write_parts(parts(), item, output)
    return [replace(each, partition_id=wanted[each.table].partition_id) for each in manifests], counts
