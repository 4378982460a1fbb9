"""The one verb that changes data: register finished files and remember them as partitions, in one transaction."""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from catalog.error import PairmillError

if TYPE_CHECKING:
    from catalog.lake import Lake
    from catalog.lease import Writer


@dataclass(frozen=True)
class Manifest:
    """One finished partition. ``path`` is absolute or relative to the lake's data path, and '' when it has no rows.
    ``seconds`` is the work's own time; ``commit`` the number that Writer.begin gave and that stands in the rows."""

    table: str
    partition_id: str
    shard: str
    scorer: str
    rows: int
    bytes: int
    seconds: float
    path: str
    commit: int
    run_id: str


@dataclass(frozen=True)
class Totals:
    """What a stream of results came to: those that were new, and those that were known already."""

    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    seconds: float = 0.0
    known: int = 0


def commit(lake: "Lake", manifests: Sequence[Manifest]) -> int:
    """Register the files and insert their `partitions` rows; all or nothing. Returns how many partitions were new.

    A (table, partition_id) that is known already is passed over: its file stays unregistered, for the sweep. DuckLake
    itself would register a file twice and double its rows.
    """
    if not manifests:
        return 0
    placed = {(m.table, m.partition_id): (m, _inside(lake, m)) for m in reversed(manifests)}

    def body() -> int:
        known = _known(lake, [partition_id for _, partition_id in placed])
        new = [pair for key, pair in placed.items() if key not in known]
        _register(lake, new)
        _remember(lake, [m for m, _ in new], [path for _, path in new])
        return len(new)

    return lake.retrying(body)


def commit_stream(
    writer: "Writer",
    results: Iterable[Manifest | Sequence[Manifest]],
    max_files: int = 200,
    max_seconds: float = 5.0,
) -> Totals:
    """Commit results as they come: at ``max_files`` files, or ``max_seconds`` after the first that waits.

    A result may be a sequence of manifests (the tables that one shard wrote): they share a transaction. What is
    finished is kept when the iterator raises, and committed on time when it stalls.
    """
    pending = _Pending(writer, max_files)
    stop = threading.Event()
    clock = threading.Thread(target=pending.tick, args=(stop, max_seconds), name="commit", daemon=True)
    clock.start()
    try:
        for result in results:
            pending.add([result] if isinstance(result, Manifest) else list(result))
    finally:
        stop.set()
        clock.join()
        pending.flush()
    return pending.totals


class _Pending:
    """Finished results that wait for their commit; shared by the reading thread and the clock."""

    def __init__(self, writer: "Writer", max_files: int) -> None:
        self.totals = Totals()
        self._writer = writer
        self._max_files = max_files
        self._waiting: list[Manifest] = []
        self._since = 0.0
        self._lock = threading.RLock()
        self._error: Exception | None = None

    def add(self, manifests: list[Manifest]) -> None:
        with self._lock:
            if self._error is not None:
                raise self._error
            self._since = self._since if self._waiting else time.monotonic()
            self._waiting += manifests
            if len(self._waiting) >= self._max_files:
                self.flush()

    def flush(self) -> None:
        with self._lock:
            manifests = self._waiting
            if not manifests:
                return
            new = self._writer.commit(
                manifests
            )  # where it fails, all of them wait for the next try, the last at the end
            old, self._waiting = self.totals, []
            self.totals = Totals(
                old.partitions + new,
                old.rows + sum(m.rows for m in manifests),
                old.bytes + sum(m.bytes for m in manifests),
                old.seconds + sum(m.seconds for m in manifests),
                old.known + len(manifests) - new,
            )

    def tick(self, stop: threading.Event, max_seconds: float) -> None:
        while not stop.wait(min(0.5, max_seconds)):
            with self._lock:
                if self._waiting and time.monotonic() - self._since >= max_seconds:
                    try:
                        self.flush()
                    except Exception as error:
                        self._error = error
                        return


def _inside(lake: "Lake", manifest: Manifest) -> str:
    """The path relative to the data path. A file elsewhere would be stored by its absolute path, and the lake could not
    be moved: DuckLake keeps a path relative only below the table's own folder."""
    path = manifest.path.removeprefix(lake.data_path)
    if not path and manifest.rows == 0:
        return ""
    if not path.startswith(f"main/{manifest.table}/") or os.path.normpath(path) != path:
        raise PairmillError(
            f"partition '{manifest.partition_id}' of '{manifest.table}': the file {manifest.path or '(none)'} is not "
            f"in the table's folder. Write it to lake.staging('{manifest.table}', run_id)."
        )
    return path


def _known(lake: "Lake", partition_ids: list[str]) -> set[tuple[str, str]]:
    sql = 'SELECT "table", partition_id FROM partitions WHERE list_contains(?, partition_id)'
    return {(row[0], row[1]) for row in lake.query(sql, (partition_ids,))}


def _register(lake: "Lake", new: list[tuple[Manifest, str]]) -> None:
    paths: dict[str, list[str]] = defaultdict(list)
    for manifest, path in new:
        if path:
            paths[manifest.table].append(lake.data_path + path)
    for table, files in sorted(paths.items()):
        lake.execute("CALL ducklake_add_data_files('lake', ?, ?)", (table, sorted(files)))


def _remember(lake: "Lake", manifests: list[Manifest], paths: list[str]) -> None:
    if not manifests:
        return
    columns = ("table", "partition_id", "shard", "scorer", "rows", "bytes", "seconds", "run_id", "commit")
    rows = pa.table({name: [getattr(m, name) for m in manifests] for name in columns} | {"path": paths})
    lake.insert("partitions", rows)
