"""Remove items, scores or versions from a lake: delete rows under the lease, erase their bytes, record the removal.

DuckLake's DELETE leaves the bytes: in the data file, beside which it writes a file of deleted positions; in older
snapshots; for inlined rows in the metadata database; and in the smallest and largest value of each column, which it
stores to plan queries. Every step of `erase` may be killed and repeated.
"""

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import former_holders
from pairmill.catalog.lake.schema import BOOKKEEPING
from pairmill.catalog.pending.contents import bans
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export.exports import lake_id, with_pairs_of
from pairmill.catalog.upkeep import taken_items
from pairmill.catalog.upkeep.amended_versions import amend, find_touched
from pairmill.catalog.upkeep.forgotten_scorer import STEP, Forgettable, delete_scorer, forgettable
from pairmill.catalog.upkeep.taken_items import Subject, Taken
from pairmill.catalog.upkeep.vacuum import refresh_statistics, vacuum
from pairmill.catalog.write import lease
from pairmill.catalog.write.judgement_log import forget_lines
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.recorded_removals import record_removal, record_report, unfinished_removals
from pairmill.catalog.write.rewritten import drop_emptied, rewrite, with_deleted_rows
from pairmill.catalog.write.sweep import ANY_AGE, flush_inlined, sweep
from pairmill.catalog.write.version_names import drop_version
from pairmill.ops.ban_list import BanList
from pairmill.ops.fault import Fault
from pairmill.tasks.run.items.index_rows import merged_files
from pairmill.tasks.run.items.payloads import payloads
from pairmill.tasks.upkeep.item_copies import NOT_REACHED, remove_copies

WAIT_SECONDS = 60.0
WRITTEN_SECONDS = 86_400  # as long as a worker may write one file


@dataclass(frozen=True)
class Erased:
    """Result of `erase`: numbers of data files rewritten without deleted rows, snapshots expired, files removed.

    ``why``: why the catalog was not rewritten, '' if it was. ``others``: lines on files that other processes may still
    write: runs on other machines (unreferenced files of the last day stay then) and readers that build caches.
    """

    rewritten: int
    snapshots: int
    removed: int
    why: str
    others: tuple[str, ...] = ()


def preview(lake: Lake, subject: Subject) -> tuple[Taken, list[Dataset]]:
    """Return the items that a takedown would remove, with their counts, and the versions that it would amend."""
    return taken_items.select(lake, subject), find_touched(lake)


def held_of(lake: Lake, banned: BanList, is_by_id: bool) -> list[str]:
    """Return the ids of the lake's pictures that ``banned`` matches; reads the bytes of all unless ``is_by_id``.

    Pictures whose bytes cannot be read are left out; `check --deep` names them.
    """
    shards = taken_items.pictures_by_shard(lake)
    if is_by_id:
        return [sha256 for keys in shards.values() for sha256 in keys if sha256 in banned.pictures]
    paths = paths_by_shard(lake, "payloads", list(shards))
    items = (WorkItem(shard, tuple(keys), paths.get(shard, ())) for shard, keys in shards.items())
    read = (
        (sha256, data) for item in items for portion in payloads(item) for sha256, data in zip(*portion, strict=True)
    )
    return [sha256 for sha256, data in read if not isinstance(data, Fault) and banned.of_picture(data, sha256)]


def take_down(
    lake: Lake, subject: Subject, reason: str, reports: Path, listed: Sequence[tuple[str, str]] = ()
) -> dict[str, Any]:
    """Remove and ban the items that ``subject`` names: their rows in one transaction, then cached copies, then bytes.

    ``reports`` is the folder of the lake's HTML reports, ``listed`` are further (kind, value) to ban. Returns the
    removal's report, as `remove` does. It names every picture and document, 35 bytes each: 1M make a row of 35 MB.
    Holds the lease; raises LeaseHeld if a run writes to the lake, and did not end within a minute, and LeaseLost if
    another process took the lease over.
    """
    with lease.writing(lake, uuid.uuid4().hex, "takedown", WAIT_SECONDS) as writer:
        taken, versions = preview(lake, subject)
        _forget_judgements(lake)

        def delete(commit: int) -> dict[str, Any]:
            taken_items.ban(lake, writer.run_id, reason, subject, listed)
            amended = [amend(lake, version, writer.run_id) for version in versions]
            return {
                "asked": {name: list(value) for name, value in asdict(subject).items()},
                "removed": asdict(taken),
                "pictures": sorted(taken_items.read_selected(lake, "taken_pictures", "sha256")),
                "documents": sorted(taken_items.read_selected(lake, "taken_documents", "document_id")),
                "rows": taken_items.delete_rows(lake, commit),
                "versions": amended,
                "exports": with_pairs_of(lake, versions),
            }

        return remove(writer, "takedown", reason, delete, reports)


def forget(lake: Lake, digest: str, reports: Path) -> tuple[Forgettable, dict[str, Any]]:
    """Delete the rows of one scorer in one transaction, then erase their bytes.

    Returns the deleted rows and affected versions, and the report. If an earlier, killed `forget` has deleted the rows,
    only their bytes are erased. ``reports`` is as for `take_down`.

    Raises:
        PairmillError: As `forgettable`.
        LeaseHeld: A run writes to the lake, and did not end within a minute.
    """
    with lease.writing(lake, uuid.uuid4().hex, f"{STEP}{digest}", WAIT_SECONDS) as writer:
        found = forgettable(lake, digest)
        if not found.rows:
            _, finished = _finish_all(writer, reports)
            return found, next(each for each in finished.values() if each.get("scorer") == found.digest)

        def delete(commit: int) -> dict[str, Any]:
            delete_scorer(lake, found, commit)
            return {"scorer": found.digest, "rows": found.rows}

        reason = f"the scores of {found.name} are forgotten"
        return found, remove(writer, f"{STEP}{found.digest}", reason, delete, reports)


def drop(lake: Lake, find: Callable[[], Dataset]) -> dict[str, Any]:
    """Delete the published rows of the version that ``find`` returns, under the lease; return the report.

    The bytes of the rows are removed once their snapshots expire. Raises LeaseHeld if a run writes to the lake, and did
    not end within a minute.
    """
    with lease.writing(lake, uuid.uuid4().hex, "drop", WAIT_SECONDS):
        dataset = find()
        rows = drop_version(lake, dataset.name, dataset.version)
    return {"at": _now(), "lake": str(lake_id(lake)), "dropped": str(dataset), "rows": rows}


def remove(
    writer: Writer, step: str, reason: str, delete: Callable[[int], dict[str, Any]], reports: Path
) -> dict[str, Any]:
    """Delete rows and record the removal in one transaction, then erase their bytes; return the report.

    ``delete`` gets the commit number, deletes the rows, and returns its part of the report. A killed removal is
    unfinished until the same command, a repair or a maintenance erases the bytes. Raises LeaseLost.
    """
    lake = writer.lake
    commit = writer.begin(step)

    def body() -> None:
        found = {"takedown": writer.run_id, "at": _now(), "lake": str(lake_id(lake)), "reason": reason}
        found |= delete(commit)
        record_removal(lake, writer.run_id, commit, found | {"erased": {"why": "it was ended before"}})

    lake.retrying(body)
    _, finished = _finish_all(writer, reports)
    return finished[writer.run_id]


def _finish_all(writer: Writer, reports: Path) -> tuple[Erased, dict[str, dict[str, Any]]]:
    """Remove cached copies, erase the bytes of all unfinished removals, record and return their reports by id.

    HTML reports stay, in the folder ``reports``, if no removal is of pictures. Raises LeaseLost.
    """
    waiting = unfinished_removals(writer.lake)
    pages = reports if any("pictures" in report for report in waiting.values()) else None
    pictures = bans(writer.lake)["picture"]
    list(remove_copies(writer.lake, pictures, pages))
    erased = erase(writer)
    # Again: meanwhile readers may have finished files that they had begun to build before the rows were deleted.
    erased = replace(erased, others=(*erased.others, *remove_copies(writer.lake, pictures, pages)))
    for takedown_id, report in waiting.items():
        stays = [*(NOT_REACHED if "pictures" in report else ()), *erased.others]
        report |= {"takedown": takedown_id, "erased": asdict(erased), "not_reached": stays}
        record_report(writer.lake, takedown_id, report)
    return erased, waiting


def _forget_judgements(lake: Lake) -> None:
    """Remove the logged judgements of taken images and texts."""
    images = taken_items.read_selected(lake, "taken_images", "image_id")
    texts = taken_items.read_selected(lake, "taken_sentences", "text")
    if images or texts:
        forget_lines(lake, lambda each: each.image_id in images or each.text in texts)


def finish_unfinished(lake: Lake, reports: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[str]:
    """Erase the bytes of unfinished removals: a kill or a reader of the lake kept them from it.

    Yields a line on the result, and one for each file that another process may still write; none without such removals.

    Raises LeaseHeld if a run writes to the lake, and did not end within ``wait_seconds``, and LeaseLost if another
    process took the lease over.
    """
    if not unfinished_removals(lake):
        return
    with lease.writing(lake, uuid.uuid4().hex, "finish removals", wait_seconds) as writer:
        erased, finished = _finish_all(writer, reports)
    if erased.why:
        yield f"{len(finished):,} removals wait for the catalog's old pages: {erased.why}"
    else:
        yield f"finished {len(finished):,} removals: rewrote {erased.rewritten:,} files"
    yield from (f"not reached: {place}" for place in erased.others)


def _now() -> str:
    """Return the current time in UTC, in ISO format to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def erase(writer: Writer) -> Erased:
    """Erase the bytes of all deleted rows of a lake, and all unreferenced files.

    Rewrites each file that has a deleted row: at most the whole lake, one file (512 MB) at a time. All older snapshots
    expire: their readers must open the lake anew. Unreferenced files of the last day stay if a process that lost the
    lease may still run. Raises LeaseLost.
    """
    lake = writer.lake
    rewritten = _rewrite_all(writer, lake.tables.difference(BOOKKEEPING))
    own = lake.tables.intersection(BOOKKEEPING)  # last: to rewrite the others changes `partitions`
    flush_inlined(writer)
    rewritten += _rewrite_all(writer, own)
    runs = [f"run {each.run_id} on {each.holder}" for each in former_holders(lake.metadata)]
    others = tuple(f"files of the last day that {run} may still write" for run in runs)
    expired, removed = sweep(writer, WRITTEN_SECONDS if others else ANY_AGE, ANY_AGE, ANY_AGE)
    merged_files(lake)  # it removes those of rewritten files
    refresh_statistics(writer)
    why = vacuum(writer, even_if_few=True).why
    return Erased(rewritten, expired, len(removed), why, others)


def _rewrite_all(writer: Writer, tables: Collection[str]) -> int:
    """Rewrite the files of these tables that have deleted rows; return their number."""
    drop_emptied(writer)
    rewritten = 0
    for table, paths in with_deleted_rows(writer.lake, tables):
        rewrite(writer, table, paths)
        rewritten += len(paths)
    return rewritten
