"""Read pages again whose rows a lake has lost, into the same partitions with the same commit numbers.

The damaged files stay in the catalog meanwhile: their rows are committed anew first.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.upkeep.lost_pages import LostPages, forget_partitions, unrepeated
from pairmill.catalog.write import runs
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Unit
from pairmill.ops.read.places.tree import SourceError
from pairmill.ops.read.source import Source, open_source, row_of
from pairmill.tasks.collect.ingest import IngestUnits, reader_names, settings_for
from pairmill.tasks.collect.listing import listed
from pairmill.tasks.run.items.partition import Output, Part, write_parts

Key = tuple[str, int, str]


@dataclass(frozen=True)
class Reread:
    """Result for one shard: rows that were lost and rows that were read again, and why any are missing.

    ``kept`` are the paths of its lost partitions if not all rows were read again, so that nothing was committed.
    """

    shard: str
    lost: int
    found: int
    why: str = ""
    kept: tuple[str, ...] = ()


def reread_pages(writer: Writer, lost: Iterable[LostPages], bad: Collection[int], lose_rows: bool) -> Iterator[Reread]:
    """Read the lost rows again from their sources, shard by shard; yield a result for each shard.

    A unit counts only if its source lists it with its former size and etag. Units that are not on record, or were
    fetched, cannot be read again. A shard of which a row is missing stays as it is unless ``lose_rows``. The files
    ``bad`` are not read. Raises LeaseLost.
    """
    by_source: dict[str, list[LostPages]] = defaultdict(list)
    for each in lost:
        by_source[each.source].append(each)
    for uri, shards in sorted(by_source.items()):
        units: dict[Key, Unit | Fault] = {}
        why = "its units are not on record"
        if uri:
            units, why = _listed(uri, {unit[:3] for each in shards for unit in each.units})
        for each in shards:
            yield _reread(writer, each, units, why, bad, lose_rows)


def _listed(uri: str, wanted: set[Key]) -> tuple[dict[Key, Unit | Fault], str]:
    """List a source; return its units among ``wanted``, and why units may be missing."""
    try:
        listing = ((row_of(each)[:3], each) for each in listed(open_source(uri)))
        return {
            key: each for key, each in listing if key in wanted
        }, f"they have changed in '{uri}' or are gone from it"
    except SourceError as error:
        return {}, str(error)


def _reread(
    writer: Writer,
    lost: LostPages,
    units: dict[Key, Unit | Fault],
    why: str,
    bad: Collection[int],
    lose_rows: bool,
) -> Reread:
    """Read one shard again, and commit what was read in place of the lost partitions unless rows are missing."""
    lake = writer.lake
    recipe = runs.recipe_of(lake, lost.run_id) or runs.latest_recipe(lake)
    readers = reader_names(recipe.ingest)
    found = [
        units[unit[:3]] for unit in lost.units if unit[:3] in units and _is_same_reader(units[unit[:3]], unit, readers)
    ]
    counts: Counter[str] = Counter()
    manifests = _read(writer, lost, found, recipe, bad, counts) if found else []
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


def _is_same_reader(found: Unit | Fault, unit: tuple[str, int, str, str], readers: dict[str, str]) -> bool:
    """Return whether a unit's reader is the one that read it before; another reader makes other documents of it."""
    return isinstance(found, Fault) or unit[3] in ("", readers[found.format])


def _read(
    writer: Writer,
    lost: LostPages,
    units: list[Unit | Fault],
    recipe: Recipe,
    bad: Collection[int],
    counts: Counter[str],
) -> list[Manifest]:
    """Read units and write the rows of the lost tables; return manifests with the ids of the lost partitions.

    Add the rows that were read to ``counts``, by table; those that an earlier reading has are not written.
    """
    source: Source = open_source(lost.source)
    keys = tuple("{}\x1e{}\x1e{}".format(*row_of(each)[:3]) for each in units)
    item = WorkItem(lost.shard, keys, inputs={"units": units})
    job = IngestUnits(source, settings_for(writer.lake, recipe))
    wanted = {each.table: each for each in lost.partitions}
    output = Output(writer.lake.data_path, writer.run_id, next(iter(wanted.values())).commit)

    def parts() -> Iterator[Part]:
        for part in job(item):
            if part.table in wanted:
                counts[part.table] += part.rows.num_rows
                yield replace(part, rows=unrepeated(writer.lake, lost, part.table, part.rows, bad))

    manifests = write_parts(parts(), item, output)
    return [replace(each, partition_id=wanted[each.table].partition_id) for each in manifests]
