"""Remove items, scores or versions from a lake: delete rows under the lease, erase their bytes, record the removal."""

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pairmill.catalog.cut.facts import facts_folder
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import cache_folder, spill_folder
from pairmill.catalog.pending.contents import bans
from pairmill.catalog.queries.compare.forgotten_scores import STEP
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.export.exports import lake_id
from pairmill.catalog.upkeep import amended_versions, takedown_record, taken_items, taken_rows
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable, delete_scorer, forgettable
from pairmill.catalog.upkeep.taken_items import Subject, Taken
from pairmill.catalog.write import lease
from pairmill.catalog.write.judgement_log import forget_lines
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.version_names import drop_version
from pairmill.tasks.release.gallery.thumbnail_cache import ThumbnailCache
from pairmill.tasks.upkeep.erase import Erased, erase

WAIT_SECONDS = 60.0
# What a takedown cannot reach, for the report.
NOT_REACHED = (
    "copies and backups of the lake, and earlier versions of objects where a bucket keeps them",
    "Postgres' write-ahead log and dead rows until Postgres recycles them, where it holds the catalog",
    "centroids, counts of words and nouns, and models that were trained while the items were there: no item can be "
    "read from them",
    "ids, which are hashes, in bans, reports of removals, and as names of groups of near-equal items",
    "small pictures that other machines or users cached below their temporary folders, of a lake on S3 or one that "
    "they may not write to",
    "logs of runs, in files and in Prefect's database",
)


def preview(lake: Lake, subject: Subject) -> tuple[Taken, list[tuple[str, int]]]:
    """Count what a takedown would remove, and return the versions that it would amend. Changes nothing."""
    return taken_items.select(lake, subject), amended_versions.touched(lake)


def take_down(lake: Lake, subject: Subject, reason: str, reports: Path, hashes: tuple[int, ...] = ()) -> dict[str, Any]:
    """Remove what ``subject`` names, under the lease: rows in one transaction, then caches, then the bytes.

    ``reports`` is the folder of the lake's HTML reports, ``hashes`` are perceptual hashes to ban. Return the report of
    the removal, as `remove`. It names every picture and document, 35 bytes each: 1M make a row of 35 MB.

    Raises:
        LeaseHeld: A run writes to the lake, and did not end within a minute.
        LeaseLost: Another process took the lease over.
    """
    with lease.writing(lake, uuid.uuid4().hex, "takedown", WAIT_SECONDS) as writer:
        taken = taken_items.select(lake, subject)
        touched = amended_versions.touched(lake)
        _forget_judgements(lake)

        def delete(commit: int) -> dict[str, Any]:
            takedown_record.ban(lake, writer.run_id, reason, subject, hashes)
            amended = [amended_versions.amend(lake, *version, writer.run_id) for version in touched]
            return {
                "asked": {name: list(value) for name, value in asdict(subject).items()},
                "removed": asdict(taken),
                "pictures": sorted(taken_items.selected(lake, "taken_pictures", "sha256")),
                "documents": sorted(taken_items.selected(lake, "taken_documents", "document_id")),
                "rows": taken_rows.delete_rows(lake, commit),
                "versions": [{"dataset": each.name, "pairs_removed": each.pairs_removed,
                              "pairs_changed": each.pairs_changed} for each in amended],
                "exports": takedown_record.exports_of(lake, touched),
            }  # fmt: skip

        return remove(writer, "takedown", reason, delete, reports, NOT_REACHED)


def forget(lake: Lake, digest: str) -> tuple[Forgettable, dict[str, Any]]:
    """Delete the rows of one scorer in one transaction, then erase their bytes; return what was there, and the report.

    Raises:
        PairmillError: As `forgettable`.
        LeaseHeld: A run writes to the lake, and did not end within a minute.
    """
    with lease.writing(lake, uuid.uuid4().hex, f"{STEP}{digest}", WAIT_SECONDS) as writer:
        found = forgettable(lake, digest)

        def delete(commit: int) -> dict[str, Any]:
            delete_scorer(lake, found, commit)
            return {"scorer": found.digest, "rows": found.rows}

        return found, remove(writer, f"{STEP}{found.digest}", f"the scores of {found.name} are forgotten", delete)


def drop(lake: Lake, find: Callable[[], Dataset]) -> dict[str, Any]:
    """Delete the published rows of the version that ``find`` returns under the lease, and return the report.

    Its bytes go with the snapshots. Raises LeaseHeld: A run writes to the lake, and did not end within a minute.
    """
    with lease.writing(lake, uuid.uuid4().hex, "drop", WAIT_SECONDS):
        dataset = find()
        rows = drop_version(lake, dataset.name, dataset.version)
    return {"at": _now(), "lake": str(lake_id(lake)), "dropped": str(dataset), "rows": rows}


def remove(
    writer: Writer,
    step: str,
    reason: str,
    delete: Callable[[int], dict[str, Any]],
    reports: Path | None = None,
    not_reached: Sequence[str] = (),
) -> dict[str, Any]:
    """Delete rows and record the removal in one transaction, then erase their bytes; return the report.

    ``delete`` deletes rows, is given the commit number, and returns its part of the report. A killed removal is
    unfinished until the same command, a repair or a maintenance erases the bytes. Raises LeaseLost.
    """
    lake = writer.lake
    commit = writer.begin(step)

    def body() -> dict[str, Any]:
        found = {"takedown": writer.run_id, "at": _now(), "lake": str(lake_id(lake)), "reason": reason}
        found |= delete(commit)
        takedown_record.begin(lake, writer.run_id, commit, found | {"erased": {"why": "it was ended before"}})
        return found

    report = lake.retrying(body)
    erased = finish(writer, reports)
    others = [f"files of the last day that {other} may still write" for other in erased.others]
    report |= {"erased": asdict(erased), "not_reached": [*not_reached, *others]}
    takedown_record.finish(lake, writer.run_id, report)
    return report


def finish(writer: Writer, reports: Path | None) -> Erased:
    """Remove reports, and what caches hold of banned pictures; erase the deleted rows' bytes. Raises LeaseLost."""
    _clear_caches(writer.lake, reports)
    return erase(writer)


def finish_unfinished(lake: Lake, reports: Path, wait_seconds: float = WAIT_SECONDS) -> Iterator[str]:
    """Erase the bytes of removals that were killed, or hindered by a reader, before they had done so; yield a line.

    Raises:
        LeaseHeld: A run writes to the lake, and did not end within ``wait_seconds``.
        LeaseLost: Another process took the lease over.
    """
    if not takedown_record.unfinished(lake):
        return
    with lease.writing(lake, uuid.uuid4().hex, "finish removals", wait_seconds) as writer:
        waiting = takedown_record.unfinished(lake)
        erased = finish(writer, reports)
        for takedown_id, report in waiting.items():
            told = {**report, "takedown": takedown_id, "erased": asdict(erased)}
            takedown_record.finish(lake, takedown_id, told)
    if erased.why:
        yield f"{len(waiting):,} removals wait for the catalog's old pages: {erased.why}"
    else:
        yield f"finished {len(waiting):,} removals: rewrote {erased.rewritten:,} files"


def _forget_judgements(lake: Lake) -> None:
    """Remove the logged judgements of taken images and texts."""
    images = taken_items.selected(lake, "taken_images", "image_id")
    texts = taken_items.selected(lake, "taken_sentences", "text")
    if images or texts:
        forget_lines(lake, lambda each: each.image_id in images or each.text in texts)


def _clear_caches(lake: Lake, reports: Path | None) -> None:
    """Remove thumbnails of banned pictures, and all other files of reports, browser and cut: they are made again."""
    folder, facts, thumbnails = cache_folder(lake, "browse"), facts_folder(lake), ThumbnailCache(lake)
    for sha256 in bans(lake)["picture"]:
        thumbnails.remove(sha256)
    made: list[Path] = [path for path in folder.iterdir() if path.is_file()]
    for path in [*made, *facts.glob("*"), *(reports.glob("*.html") if reports else ())]:
        path.unlink(missing_ok=True)
    for parent in (folder, facts.parent):
        spill_folder(str(parent))  # removes what killed processes left there


def _now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")
