"""Check a lake: every file against the catalog, the rows against `partitions`, the pictures against their hashes."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.upkeep import disagreements, recorded_files, takedown_record
from pairmill.catalog.upkeep.changed_versions import changed_versions
from pairmill.catalog.upkeep.lost_rows import MOST, Damage
from pairmill.tasks.upkeep.file_check import damaged_files
from pairmill.tasks.upkeep.payload_check import damaged_payloads

# Tables without which no row can be counted.
_COUNTED_BY = ("partitions", "commits", "inputs", "rereads", "scorers")
# Tables without which no digest of a version can be computed.
_DIGESTED = ("pairs", "datasets", "takedowns", "amended_versions", "amended_pairs")
Show = Callable[[str], None]


@dataclass(frozen=True)
class Checked:
    """Result of a check: the number of files and their bytes, and the damage, in the order of the checks."""

    files: int
    bytes: int
    damages: tuple[Damage, ...]


def check_lake(lake: Lake, deep: bool = False, show: Show = lambda _: None) -> Checked:
    """Check the files, then the rows; with ``deep`` also each picture, the keys of scores, and versions' digests.

    Reads every byte of the lake. Holds one page of files (2,000) and the damages in memory. Takes no lease: a run may
    write meanwhile.

    Raises:
        PairmillError: More than MOST files are damaged.
    """
    files, size, damages = recorded_files.list_files(lake), 0, []
    done = 0
    for page in recorded_files.pages(lake):
        damages += _among(lake, page)
        done, size = done + len(page), size + sum(file.size for file in page)
        show(f"{done:,} of {files:,} files")
        if len(damages) > MOST:
            raise PairmillError(
                f"lake '{lake.uri}': over {MOST:,} files are gone or damaged, among them {lake.data_path}"
                f"{damages[0].path}. Mount its disk, or put the whole lake back from a copy."
            )
    if deep:
        damages += _of_pictures(lake, {damage.path for damage in damages}, show)
    rows = of_rows(lake, damages, deep, show)
    has_digests = deep and not {damage.table for damage in damages}.intersection(_DIGESTED)
    changed = changed_versions(lake) if has_digests else ()
    return Checked(files, size, (*unfinished(lake), *damages, *rows, *changed))


def unfinished(lake: Lake) -> Iterator[Damage]:
    """Yield the removals whose rows are deleted while their bytes may still be in the lake's files."""
    for takedown_id in takedown_record.unfinished(lake):
        detail = f"removal {takedown_id} is not finished: what it deleted is still in the lake's files"
        yield Damage("unfinished", "takedowns", detail, 0)


def of_rows(lake: Lake, damages: Collection[Damage], deep: bool, show: Show) -> list[Damage]:
    """Return the rows that count twice or disagree with `partitions`, of tables without damaged files."""
    bad = {damage.table for damage in damages if damage.trouble in ("gone", "damaged")}
    if unreadable := bad.intersection(_COUNTED_BY):
        show(f"rows are not counted: {', '.join(sorted(unreadable))} is damaged")
        return []
    twice = list(disagreements.doubled(lake))
    return [*twice, *disagreements.miscounted(lake, bad | {damage.table for damage in twice}, deep)]


def _among(lake: Lake, page: list[recorded_files.RecordedFile]) -> list[Damage]:
    """Return the damage among a page of files, without files that a run replaced since they were listed."""
    found = list(damaged_files(lake.data_path, page))
    named = recorded_files.still_named(lake, [number for damage in found for number in damage.ids])
    return [damage for damage in found if named.issuperset(damage.ids)]


def _of_pictures(lake: Lake, without: Collection[str], show: Show) -> Iterator[Damage]:
    """Yield the damage to the bytes of pictures, in files whose paths are not in ``without``."""
    for n, file in enumerate(recorded_files.files_of(lake, "payloads"), 1):
        if file.path not in without:
            yield from damaged_payloads(lake.data_path, file)
        show(f"pictures of {n:,} files")
