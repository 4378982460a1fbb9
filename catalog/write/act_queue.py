"""Queue people's acts in a folder beside the lake, until a process that holds the lease stores them in table `acts`.

A run may hold the lease for days, so an act does not wait for it: it is on disk when `put` returns, and whoever holds
the lease stores it, at once, with its next commit or when it ends. A file is one act, its rows as `acts` has them; its
name begins with the time, so that acts are stored in their order. It is removed once its rows are committed. A process
that is killed in between stores nothing twice: an act is stored once by its id, an undo once by that of the act.
"""

import os
import time
import uuid
from collections.abc import Callable

import duckdb

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import folder_of_people
from pairmill.catalog.lake.stored_files import remove_file, sync
from pairmill.catalog.terms.error import PairmillError

FOLDER = "acts"
WAITING = 2**62  # the commit number of an act that waits, and more; beyond all that are stored
COLUMNS = 'act_id, act, dataset, sha256, field, pattern, value, before, who, "at"'


def put(lake: Lake, rows: str) -> None:
    """Write one act to the queue and sync it to disk. ``rows`` is SQL for its rows, with the columns COLUMNS.

    The lake may be open for reading only. Raises PairmillError if its folder cannot be written to.
    """
    folder = folder_of_people(lake, FOLDER)
    name = f"{time.time_ns():020}-{uuid.uuid4().hex}.parquet"
    path = f"{folder}/{name}"
    try:
        if path.startswith("s3://"):
            lake.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet)")
            return
        os.makedirs(folder, exist_ok=True)
        part = f"{folder}/.{name}"
        lake.execute(f"COPY ({rows}) TO {quoted(part)} (FORMAT parquet)")
        sync(part)
        os.rename(part, path)
        sync(folder)
    except (OSError, duckdb.IOException) as error:
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise PairmillError(
            f"nothing was stored: {folder} is not writable ({why}). Act as a user who may write to the lake."
        ) from error


def waiting_files(lake: Lake) -> list[str]:
    """Return the paths of the queued acts, oldest first."""
    folder = folder_of_people(lake, FOLDER)
    if folder.startswith("s3://"):
        return [path for (path,) in lake.query(f"SELECT file FROM glob({quoted(f'{folder}/*.parquet')}) ORDER BY file")]
    # Not by glob, which takes `[` of a lake's path for a pattern.
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [f"{folder}/{name}" for name in names if name.endswith(".parquet") and not name.startswith(".")]


def unreadable_files(lake: Lake) -> list[str]:
    """Return the paths of queued files that are damaged; they stay until somebody removes them."""
    return [path for path in waiting_files(lake) if not _is_readable(lake, path)]


def waiting_rows(lake: Lake) -> str:
    """Return SQL for the rows of all queued acts, '' if none waits. Their ``commit`` is WAITING or more.

    Opens each file: for the few acts of the seconds between two commits, not for thousands.
    """
    paths = [path for path in waiting_files(lake) if _is_readable(lake, path)]
    return " UNION ALL ".join(
        f'SELECT {COLUMNS}, {WAITING + place} AS "commit" FROM {_rows(path)}' for place, path in enumerate(paths)
    )


def take(lake: Lake, begin: Callable[[], int]) -> None:
    """Move the queued acts into table `acts`, oldest first, each in a transaction with a number of ``begin``.

    Left out are rows of pictures that a takedown has banned since, and texts as they were before it. Requires the
    lease; raises LeaseLost.
    """
    for path in waiting_files(lake):
        if not _is_readable(lake, path):
            continue
        commit = begin()
        columns = COLUMNS.replace("before", 'if("at" < (SELECT max("at") FROM takedowns), NULL, before) AS before')
        sql = f"""INSERT INTO acts BY NAME SELECT {columns}, {commit} AS "commit" FROM {_rows(path)} q
            WHERE NOT EXISTS (SELECT 1 FROM acts a WHERE a.act_id = q.act_id AND (a.act = 'undo') = (q.act = 'undo'))
            AND (sha256 IS NULL OR sha256 NOT IN (SELECT sha256 FROM bans))"""
        lake.retrying(lambda sql=sql: lake.execute(sql))
        remove_file(path)


def _rows(path: str) -> str:
    return f"read_parquet({quoted(path.replace('[', '[[]'))})"


def _is_readable(lake: Lake, path: str) -> bool:
    """Return whether a queued file has the rows of an act, and has not been taken meanwhile."""
    try:
        return bool(lake.query(f"SELECT {COLUMNS} FROM {_rows(path)} LIMIT 1"))
    except (duckdb.Error, PairmillError):
        return False
