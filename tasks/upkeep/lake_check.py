"""Check a lake: every file against the catalog, the rows against `partitions`, the pictures against their hashes."""

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pyarrow.parquet as pq

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.stored_files import file_digest
from pairmill.catalog.terms.error import Damaged, PairmillError
from pairmill.catalog.upkeep import recorded_files
from pairmill.catalog.upkeep.amended_versions import changed_versions
from pairmill.catalog.upkeep.damages import MOST, Damage, find_doubled, find_leaks, find_miscounted
from pairmill.catalog.upkeep.recorded_files import RecordedFile
from pairmill.catalog.write.recorded_removals import unfinished_removals
from pairmill.ops.fault import Fault
from pairmill.ops.read.places.tree import SourceError
from pairmill.tasks.run.items.payloads import COLUMNS, bytes_of_rows
from pairmill.tasks.run.items.rows import open_parquet

# Tables without which no row can be counted.
_COUNTED_BY = ("partitions", "commits", "inputs", "rereads", "scorers")
# Tables without which no digest of a version can be computed.
_DIGESTED = ("pairs", "datasets", "takedowns", "amended_versions", "amended_pairs")
# Tables without which groups that cross splits cannot be found.
_LINKING = ("pairs", "datasets", "image_groups", "duplicate_edges", "scorers")
REQUESTS = 16  # threads on S3, where a file is two requests and the wait for them
# Pictures in memory at once: 6 MB at 100 KB each, 800 MB if all have the most bytes that a recipe usually allows.
AT_ONCE = 16
Show = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """Result of a check: number of files, their bytes, and the damages in the order of the checks."""

    files: int
    bytes: int
    damages: tuple[Damage, ...]


def check_lake(lake: Lake, deep: bool = False, show: Show = lambda _: None) -> Checked:
    """Check a lake's files, then its rows; with ``deep`` also each picture, the keys of scores and versions' digests.

    Reads every byte of the lake. Holds one page of files (2,000) and the damages in memory. Takes no lease: a run may
    write meanwhile. Raises PairmillError if more than MOST files are damaged.
    """
    files, size, damages = recorded_files.list_files(lake), 0, []
    done = 0
    for page in recorded_files.pages(lake):
        damages += _damaged_files(lake, page)
        done, size = done + len(page), size + sum(file.size for file in page)
        show(f"{done:,} of {files:,} files")
        if len(damages) > MOST:
            raise PairmillError(
                f"lake '{lake.uri}': over {MOST:,} files are gone or damaged, among them {lake.data_path}"
                f"{damages[0].path}. Mount its disk, or put the whole lake back from a copy."
            )
    if deep:
        damages += _of_pictures(lake, {damage.path for damage in damages}, show)
    rows = check_rows(lake, damages, deep, show)
    bad = {damage.table for damage in damages}
    changed = changed_versions(lake) if deep and not bad.intersection(_DIGESTED) else ()
    leaks = () if bad.intersection(_LINKING) else find_leaks(lake)
    detail = "removal {} is unfinished: what it deleted is still in the files; `pairmill maintain` erases it"
    unfinished = [Damage("unfinished", "takedowns", detail.format(each), 0) for each in unfinished_removals(lake)]
    return Checked(files, size, (*unfinished, *damages, *rows, *changed, *leaks))


def check_rows(lake: Lake, damages: Collection[Damage], deep: bool, show: Show) -> list[Damage]:
    """Return damages of rows that count twice or disagree with `partitions`, in tables without damaged files.

    A damaged file of which a killed repair has committed the rows anew belongs to no partition: it is damaged only.
    """
    bad = {damage.table for damage in damages if damage.trouble in ("gone", "damaged")}
    if unreadable := bad.intersection(_COUNTED_BY):
        show(f"rows are not counted: {', '.join(sorted(unreadable))} is damaged")
        return []
    ids = {number for damage in damages for number in damage.ids}
    with lake.one_snapshot_if_small():
        twice = [damage for damage in find_doubled(lake) if not damage.ids or not ids.issuperset(damage.ids)]
        return [*twice, *find_miscounted(lake, bad | {damage.table for damage in twice}, deep)]


def _damaged_files(lake: Lake, files: Sequence[RecordedFile]) -> list[Damage]:
    """Return the damage among files, without those that a run replaced since they were listed.

    Hashes one file per CPU at a time, which reads some 1.5 GB/s each.
    """
    on_s3 = lake.data_path.startswith("s3://")
    with ThreadPoolExecutor(REQUESTS if on_s3 else len(os.sched_getaffinity(0))) as pool:
        examined = pool.map(lambda file: _damage_of_file(lake.data_path + file.path, file, on_s3), files)
        found = [damage for damage in examined if damage]
    named = recorded_files.still_named(lake, [number for damage in found for number in damage.ids])
    return [damage for damage in found if named.issuperset(damage.ids)]


def _damage_of_file(path: str, file: RecordedFile, on_s3: bool) -> Damage | None:
    """Return the damage of a file, None if it is as it was written. S3 itself verifies the bytes of its files."""
    if not on_s3 and os.path.exists(path) and not os.path.isfile(path):
        return _make_damage(file, "it is no regular file")  # to open a pipe would wait for ever
    try:
        with open_parquet(path) as handle:
            if handle.size != file.size:
                return _make_damage(file, f"the file has {handle.size:,} bytes instead of {file.size:,}")
            if not on_s3 and file.sha256 and not file_digest(path).startswith(file.sha256):
                return _make_damage(file, "the file has other bytes than were written")
            if file.path.endswith(".parquet") and (rows := pq.read_metadata(handle).num_rows) != file.rows:
                return _make_damage(file, f"the file has {rows:,} rows instead of {file.rows:,}")
            return None
    except Damaged as error:
        return _unreadable(file, error)


def _of_pictures(lake: Lake, without: Collection[str], show: Show) -> Iterator[Damage]:
    """Yield the damage to the bytes of pictures, in files whose paths are not in ``without``."""
    for n, file in enumerate(recorded_files.files_of(lake, "payloads"), 1):
        if file.path not in without:
            yield from _damaged_payloads(lake.data_path, file)
        show(f"pictures of {n:,} files")


def _damaged_payloads(data_path: str, file: RecordedFile) -> Iterator[Damage]:
    """Yield the damage of one file of ``payloads``: bytes with another hash, and pictures missing from their source."""
    found: Counter[str] = Counter()
    example = ""
    try:
        with open_parquet(data_path + file.path) as handle:
            for batch in pq.ParquetFile(handle).iter_batches(AT_ONCE, columns=COLUMNS):
                for data in bytes_of_rows(batch.to_pylist(), file.path):
                    if isinstance(data, Fault | SourceError):
                        found[data.reason if isinstance(data, Fault) else "source"] += 1
                        example = example or (data.detail if isinstance(data, Fault) else str(data))
    except Damaged as error:
        yield _unreadable(file, error)
        return
    if n := found["damaged"]:
        yield replace(_make_damage(file, f"{n:,} pictures have another hash ({example})"), rows=n)
    if n := found["missing"] + found["source"]:
        yield Damage("source", file.table, f"{n:,} pictures are not in their source any more ({example})", n, file.path)


def _make_damage(file: RecordedFile, detail: str) -> Damage:
    return Damage("damaged", file.table, detail, file.rows, file.path, (file.id,))


def _unreadable(file: RecordedFile, error: Damaged) -> Damage:
    """Return the damage of a file that cannot be read, or is gone."""
    if isinstance(error.__cause__, FileNotFoundError):
        return replace(_make_damage(file, "the file is gone"), trouble="gone")
    return _make_damage(file, f"the file cannot be read ({' '.join(str(error.__cause__).split())[:120]})")
