"""Cache the joined inputs of a cut in one file beside the lake, so that a changed threshold re-cuts in seconds.

The cache is a DuckDB file, attached as ``facts``, with the tables of :mod:`catalog.cut.facts_tables`. Its name contains
a digest of its inputs (the files of every table read, the scorers, the seed), its size and its modification time. So it
may be deleted at any time, and no cut can read a file that is outdated or was modified. The first cut after new rows
makes another file of it, and removes outdated ones but for those of two other recipes. At 1M images and 11M candidates
it takes 23 CPU s, of 1 % of new rows 3 (:mod:`catalog.cut.facts_extension`), and from unchanged facts 1, in 2.6 GB of
memory and 235 bytes of disk per image; :mod:`catalog.cut.kept_file` adds 23.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from os import replace
from pathlib import Path
from shutil import copyfile

import duckdb

from pairmill.catalog.cut.facts_extension import extend, record
from pairmill.catalog.cut.facts_tables import LAYOUT, fill, scorers_read, tables_read, texts_read
from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import cache_folder, own_cache_folder, scratch_folder
from pairmill.catalog.pending.changed_inputs import count_rows
from pairmill.catalog.pending.eligible import best_candidates
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.recorded_removals import last_removal

# Rows of the largest table from which facts are extended: a join of fewer takes no longer than the statements of this.
EXTENDED = 100_000
FORMER = 2  # outdated files that stay, for other recipes to extend
BESIDE = ("texts-", "early-")  # files of `catalog.cut.kept_file`, which removes its own


def attach(lake: Lake, plan: Plan) -> Path:
    """Attach the file of facts as database ``facts`` and return its path. Build the file first if there is none.

    The facts are those of the lake's current rows, for what the plan reads of them.
    """
    folder, plan_digest = facts_folder(lake), _plan_digest(plan)
    path = unmodified_file(folder, f"{data_digest(lake, 'lake', tables_read(lake))}-{plan_digest}")
    attached = lake.query("SELECT path FROM duckdb_databases() WHERE database_name = 'facts'")
    if path and attached == [(str(path),)]:
        return path
    if attached:
        lake.execute("DETACH facts")
    if path and _is_attached(lake, path):
        return path
    path = _make(lake, plan, folder, plan_digest)
    if not _is_attached(lake, path):  # another reader, with facts of another snapshot, has removed it
        path = _make(lake, plan, folder, plan_digest)
        lake.execute(_attach(path))
    return path


def discard(lake: Lake) -> bool:
    """Detach and remove the attached facts. Return whether any were attached."""
    attached = lake.query("SELECT path FROM duckdb_databases() WHERE database_name = 'facts'")
    for (path,) in attached:
        lake.execute("DETACH facts")
        Path(path).unlink(missing_ok=True)
    return bool(attached)


def unmodified_file(folder: Path, name: str) -> Path | None:
    """Return an unmodified facts file for ``name``, a glob pattern, or None; remove modified ones."""
    for path in folder.glob(f"{name}.*.duckdb"):
        with suppress(FileNotFoundError):
            if path.name == with_stamp(path.name.partition(".")[0], path):
                return path
        path.unlink(missing_ok=True)
    return None


def with_stamp(name: str, path: Path) -> str:
    """Return the file name with size and modification time appended; a later write makes the name invalid."""
    found = path.stat()
    return f"{name}.{found.st_size}-{found.st_mtime_ns}.duckdb"


def newest_first(files: Iterable[Path]) -> list[Path]:
    """Sort files by the time in their names (`with_stamp`), the newest first. No file is read: one may be gone."""
    return sorted(files, key=lambda path: path.stem.rpartition("-")[2], reverse=True)


def _is_attached(lake: Lake, path: Path) -> bool:
    """Attach the file; remove it and return False if that fails. DuckDB verifies each block that it reads."""
    try:
        lake.execute(_attach(path))
    except (PairmillError, duckdb.Error):
        path.unlink(missing_ok=True)
        return False
    return True


def _attach(path: Path) -> str:
    """Return the ATTACH statement of a facts file."""
    return f"ATTACH {quoted(str(path))} AS facts (READ_ONLY)"


def facts_folder(lake: Lake) -> Path:
    """Return the folder for facts; a reader has its own, because the cut of an older snapshot removes other facts."""
    return own_cache_folder(lake, "facts") if lake.read_only else cache_folder(lake, "facts")


def data_digest(lake: Lake, catalog: str, tables: Sequence[str]) -> str:
    """Hash the paths of all data files and delete files of ``tables``, which are immutable, to 16 hex digits."""
    digest = hashlib.sha256(lake.data_path.encode())
    files: dict[str, list[tuple]] = {table: [] for table in tables}
    for table, data_file, delete_file in snapshot.files(lake.unchecked, files, catalog):
        deleted = delete_file and lake.data_path + delete_file
        files[table].append((lake.data_path + data_file, deleted))
    for table, found in files.items():
        digest.update(json.dumps([table, found]).encode())
    return digest.hexdigest()[:16]


def _plan_digest(plan: Plan) -> str:
    """Hash the parts of a plan that the facts depend on, DuckDB's version and the layout to 16 hex digits."""
    asked = (
        duckdb.__version__,
        LAYOUT,
        plan.recipe.seed,
        best_candidates(plan),
        scorers_read(plan),
        texts_read(plan.image_checks),
        texts_read(plan.sentence_checks),
    )
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def _make(lake: Lake, plan: Plan, folder: Path, plan_digest: str) -> Path:
    """Build the file under a temporary name and rename it.

    If this process is killed, the next process to open the lake removes the temporary file.
    """
    removed = last_removal(lake)
    with scratch_folder(folder.parent) as unfinished:
        making = unfinished / folder.name
        with lake.pinned() as catalog:
            digest = data_digest(lake, catalog, tables_read(lake))
            former, written = unmodified_file(folder, f"*-{plan_digest}") if lake.largest >= EXTENDED else None, False
            with suppress(FileNotFoundError, PairmillError, duckdb.Error):  # the former facts are gone or damaged
                written = former is not None and _write(lake, plan, catalog, making, former)
            if not written:
                making.unlink(missing_ok=True)
                _write(lake, plan, catalog, making, None)
        stay = f"{digest}-", *BESIDE
        outdated = [path for path in folder.glob("*.duckdb") if not path.name.startswith(stay)]
        for path in newest_first(outdated)[FORMER if lake.largest >= EXTENDED else 0 :]:
            path.unlink(missing_ok=True)
        if last_removal(lake) != removed:  # the file may hold what was removed meanwhile
            return _make(lake, plan, folder, plan_digest)
        return making.rename(folder / with_stamp(f"{digest}-{plan_digest}", making))


def _write(lake: Lake, plan: Plan, catalog: str, making: Path, former: Path | None) -> bool:
    """Write facts into ``making``; with ``former``, extend these in place, or return False if that cannot be.

    Unlike a copy, that needs no second 2 GB at 10M images; who is killed meanwhile makes the next facts from nothing.
    Readers share a folder, in one process too, where no lock tells of an attached file: theirs are copied.
    """
    if former is not None:
        (copyfile if former.parent == own_cache_folder(lake, "facts") else replace)(former, making)
    lake.execute(f"ATTACH {quoted(str(making))} AS making")
    try:
        if former is not None:
            return extend(lake, plan, catalog)
        fill(lake, plan)
        if lake.largest >= EXTENDED:
            record(lake, count_rows(lake, tables_read(lake), catalog, -1))
        return True
    finally:
        lake.execute("DETACH making")
