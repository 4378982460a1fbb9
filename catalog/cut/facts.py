"""Keep what a cut reads joined in one file beside the lake: a changed threshold re-cuts in seconds.

A DuckDB file, attached as ``facts``, with the tables of :mod:`catalog.cut.facts_tables`. Its name is a digest of what
it was made from (the files of every table read, the scorers, the seed) with its size and time of writing. So it may be
deleted at any time, and no cut can read one that is outdated or was changed since. The first cut after new facts makes
it anew and removes those of former facts: 18 s at 1M images and 11M candidates, 250 s at 10M in 2.6 GB of memory, 180
bytes an image of disk; a cut from it takes 1.2 s and 9.5.
"""

import hashlib
import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import duckdb

from pairmill.catalog.cut.facts_tables import LAYOUT, fill, scorers_read, tables_read, texts_read
from pairmill.catalog.lake import snapshot, spill
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import best_candidates
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError


def attach(lake: Lake, plan: Plan) -> None:
    """Attach ``facts`` of the lake's rows for this plan; make them where there are none, or damaged ones. Raises
    PairmillError when the folder for them belongs to another user."""
    folder, plan_digest = _folder(lake), _plan_digest(plan)
    path = _made(folder, f"{_data_digest(lake, 'lake')}-{plan_digest}")
    attached = lake.query("SELECT path FROM duckdb_databases() WHERE database_name = 'facts'")
    if path and attached == [(str(path),)]:
        return
    if attached:
        lake.execute("DETACH facts")
    if path and _is_attached(lake, path):
        return
    lake.execute(_attach(_make(lake, plan, folder, plan_digest)))


def discard(lake: Lake) -> bool:
    """Detach and remove the facts that are attached. Returns whether there were any."""
    attached = lake.query("SELECT path FROM duckdb_databases() WHERE database_name = 'facts'")
    for (path,) in attached:
        lake.execute("DETACH facts")
        Path(path).unlink(missing_ok=True)
    return bool(attached)


def _made(folder: Path, name: str) -> Path | None:
    """Find the file of facts ``name`` that is as it was written; remove others of that name."""
    for path in folder.glob(f"{name}.*.duckdb"):
        with suppress(FileNotFoundError):
            if path.name == _with_stamp(name, path):
                return path
        path.unlink(missing_ok=True)
    return None


def _with_stamp(name: str, path: Path) -> str:
    """Return the file's name with its size and time of writing: who writes to it later makes them another's."""
    found = path.stat()
    return f"{name}.{found.st_size}-{found.st_mtime_ns}.duckdb"


def _is_attached(lake: Lake, path: Path) -> bool:
    """Attach the file; False, and no file any more, when it cannot be: DuckDB checks each block that it reads."""
    try:
        lake.execute(_attach(path))
    except (PairmillError, duckdb.Error):
        path.unlink(missing_ok=True)
        return False
    return True


def _attach(path: Path) -> str:
    return f"ATTACH {quoted(str(path))} AS facts (READ_ONLY)"


def _folder(lake: Lake) -> Path:
    """Make the facts' folder: beside a local lake, else (on S3, read-only) where temporary files go."""
    beside = Path(lake.query("SELECT current_setting('temp_directory')")[0][0]).parent
    if beside != Path(tempfile.gettempdir()):
        folder = beside / ".facts"
        folder.mkdir(exist_ok=True)
        return folder
    mine = beside / f"pairmill-facts-{os.getuid()}"
    mine.mkdir(mode=0o700, exist_ok=True)
    if mine.stat().st_uid != os.getuid():
        raise PairmillError(f"{mine} belongs to another user. Set TMPDIR to a folder of your own.")
    folder = mine / hashlib.sha256(lake.data_path.encode()).hexdigest()[:16]
    folder.mkdir(exist_ok=True)
    return folder


def _data_digest(lake: Lake, catalog: str) -> str:
    """Hash the files of all tables read, which never change, and those that name deleted rows, to 16 hex digits."""
    digest = hashlib.sha256(lake.data_path.encode())
    files: dict[str, list[tuple]] = {table: [] for table in tables_read() if table in lake.tables}
    for table, data_file, delete_file in snapshot.files(lake.unchecked, files, catalog):
        deleted = delete_file and lake.data_path + delete_file
        files[table].append((lake.data_path + data_file, deleted))
    for table, found in files.items():
        digest.update(json.dumps([table, found]).encode())
    return digest.hexdigest()[:16]


def _plan_digest(plan: Plan) -> str:
    """Hash what of a plan the facts depend on, DuckDB's version and the layout to 16 hex digits."""
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
    """Write the file under a name of its own, which the next to open the lake removes if this process is killed."""
    unfinished = Path(spill.folder(str(folder.parent)))
    unfinished.mkdir()
    try:
        with lake.pinned() as catalog:
            data_digest = _data_digest(lake, catalog)
            lake.execute(f"ATTACH {quoted(str(unfinished / folder.name))} AS making")
            try:
                fill(lake, plan)
            finally:
                lake.execute("DETACH making")
        for former in folder.glob("*.duckdb"):
            if not former.name.startswith(f"{data_digest}-"):
                former.unlink(missing_ok=True)
        made = unfinished / folder.name
        return made.rename(folder / _with_stamp(f"{data_digest}-{plan_digest}", made))
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
