"""Declare where Pairmill writes copies of a lake's items beside its tables, and remove those copies at a removal.

Each module that writes files is a writer of one of PLACES, or a test (`tests/tasks/test_item_copies.py`) says why its
files hold no item. A later use makes the copies of the remaining items again.
"""

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.side_folders import cache_folder, folder_of_people, own_cache_folder, remove_stale_spills
from pairmill.catalog.write import act_queue, judgement_log

# What a removal cannot reach, for its report.
NOT_REACHED = (
    "copies and backups of the lake, and earlier versions of objects and parts of unfinished uploads where a bucket "
    "keeps them",
    "Postgres' write-ahead log and dead rows until Postgres recycles them, where it holds the catalog",
    "centroids, counts of words and nouns, and models that were trained while the items were there: no item can be "
    "read from them",
    "ids, which are hashes, in bans, reports of removals, and as names of groups of near-equal items",
    "small pictures of a lake on S3, and facts of trial cuts, that other machines or users cached below their "
    "temporary folders",
    "logs of runs, in files and in Prefect's database, and what a Ray cluster spilled, until it is stopped",
    "files that a user named: by --to, --draw or a COPY in SQL, and exports that were ended before they were recorded",
    "pages and pictures in the caches of browsers in which the lake was looked at",
)


@dataclass(frozen=True)
class CopyPlace:
    """Files that may hold copies of items."""

    # function of a lake and the folder of its reports (None if reports are to stay) to the files' folders
    folders: Callable[[Lake, Path | None], Iterable[Path]]
    patterns: tuple[str, ...]  # glob patterns of the files in those folders
    writers: tuple[str, ...]  # the modules that write the files, without ``pairmill.``
    named: bool = False  # whether a file's name begins with the sha256 of the one picture that it shows


def _caches(lake: Lake, name: str) -> tuple[Path, Path]:
    """Return the two folders of a cache: the one beside the lake, and this user's own for a read-only lake."""
    return cache_folder(lake, name), own_cache_folder(lake, name)


def _local(lake: Lake, name: str) -> Iterable[Path]:
    """Return a folder beside a local lake's data, nothing for a lake on S3, where no file is ever half written."""
    folder = folder_of_people(lake, name)
    return () if folder.startswith("s3://") else (Path(folder),)


PLACES = (
    # Galleries, vectors, codes, maps and lists of the browser.
    CopyPlace(lambda lake, _: _caches(lake, "browse"), ("*",), (
        "catalog.queries.gallery.gallery_file", "catalog.queries.gallery.image_vectors",
        "tasks.release.gallery.vector_files", "flows.browse.act_routes",
    )),
    CopyPlace(lambda lake, _: _caches(lake, "browse"), ("thumbnails/*/*",), (
        "tasks.release.gallery.thumbnails",
    ), named=True),
    CopyPlace(lambda lake, _: _caches(lake, "facts"), ("*",), ("catalog.cut.facts",)),
    # Reports, strips of first captions, pages of thresholds.
    CopyPlace(lambda _, reports: [reports] if reports else [], ("*.html", "*.html.*.part"), (
        "flows.run.outcome", "flows.pages.renderer",
    )),
    # Whole logs lose their lines of taken items; a killed rewriting leaves all lines in a file of its own.
    CopyPlace(lambda lake, _: _local(lake, judgement_log.FOLDER), ("*.part",), ("catalog.write.judgement_log",)),
    # Whoever holds the lease takes whole acts; a killed process leaves a half-written one.
    CopyPlace(lambda lake, _: _local(lake, act_queue.FOLDER), (".*",), ("catalog.write.act_queue",)),
)  # fmt: skip


def spill_parents(lake: Lake) -> tuple[Path, ...]:
    """Return the folders of a lake's temporary files: DuckDB's spilled data, caches being built, samples, dry runs."""
    beside = () if lake.data_path.startswith("s3://") else (Path(lake.data_path),)
    caches = (folder for name in ("browse", "facts") for each in _caches(lake, name) for folder in (each, each.parent))
    return tuple(dict.fromkeys([*(path.parent for path in beside), *caches, Path(tempfile.gettempdir())]))


def remove_copies(lake: Lake, pictures: Collection[str], reports: Path | None) -> Iterator[str]:
    """Remove all files of PLACES, of thumbnails only those of ``pictures`` (sha256s), and killed processes' spills.

    Reports stay if ``reports``, their folder, is None. Yields a line for each temporary file that stays, because its
    process still runs.
    """
    for place in PLACES:
        folders = place.folders(lake, reports)
        for path in (path for folder in folders for each in place.patterns for path in folder.glob(each)):
            if path.is_file() and (not place.named or path.name[:32] in pictures):
                path.unlink(missing_ok=True)
    for parent in spill_parents(lake):
        for path, owner in remove_stale_spills(str(parent)):
            yield f"{path}, which {owner} made of this lake or another: it goes when that process has ended"
