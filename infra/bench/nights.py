"""Benchmark a lake that grows for 30 nights, with and without nightly maintenance: files, bytes, statements, commits.

Every night brings NEW partitions of three tables in commits of one partition each: `image_hash` and `quarantine`, whose
small files DuckLake merges, and `image_embedding`, whose small files are joined, since workers open them by path. A
night's time passes by dating snapshots and files back by a day. Run as ``python -m infra.bench.nights [--nights N]``.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.measure import Row, finish, parser, timed
from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.flows.maintain import Limits, maintain_steps

NEW = 8  # partitions of each table a night
EARLY = 5  # the middle of the three nights with whose median that of the last three is compared
TABLES = ("image_hash", "image_embedding", "quarantine")
DAY = 86_400
Measured = dict[str, float]


def partition(lake: Lake, table: str, number: int) -> Manifest:
    """Write ten rows of ``table`` to a new Parquet file, as a worker does; return its manifest."""
    name = f"{table}-{number}"
    path = f"{lake.staging(table, 'bench')}/{name}.parquet"
    schema = arrow_schema(table)
    vector = np.full(512, number, np.float16).tobytes()
    given = {"sha256": f"{number:032x}", "shard": name, "scorer": "s", "commit": number, "phash": number,
             "image_vector": vector, "item": name, "stage": "ingest", "reason": "empty"}  # fmt: skip
    columns = {field.name: pa.array([given.get(field.name)] * 10, field.type) for field in schema}
    pq.write_table(pa.table(columns, schema), path)
    return Manifest(table, name, name, "s", 10, os.path.getsize(path), 0.1, path, number, "bench")


def grown(place: Path, night: int) -> list[float]:
    """Commit the partitions of one night; return the CPU seconds of each commit."""
    seconds = []
    with create_or_open(place) as lake, lease.writing(lake, f"night-{night}", "bench") as writer:
        for n in range(NEW):
            for table in TABLES:
                made = partition(lake, table, night * NEW + n)
                seconds.append(timed(lambda made=made: writer.commit([made])).cpu)
            writer.begin("step")
    return seconds


def day_passes(place: Path) -> None:
    """Date all snapshots, files, and files that wait for their removal back by a day."""
    times = {"ducklake_snapshot": "snapshot_time", "ducklake_files_scheduled_for_deletion": "schedule_start"}
    with create_or_open(place) as lake:
        for table, column in times.items():
            back = f"({column}::TIMESTAMPTZ - INTERVAL 1 DAY)::VARCHAR"
            lake.metadata.write(f"UPDATE {table} SET {column} = {back}")
    for file in (place / "data").rglob("*.parquet"):
        os.utime(file, (file.stat().st_atime, file.stat().st_mtime - DAY))


def statements(place: Path) -> float:
    """Return the least CPU seconds, of twenty times, of a statement on each table that grows."""

    def read() -> None:
        for table in TABLES:
            lake.query(f"SELECT count(DISTINCT shard) FROM {table}")

    with create_or_open(place, read_only=True) as lake:
        return min(timed(read).cpu for _ in range(20))


def opening(place: Path) -> float:
    """Return the median CPU seconds to open the lake and count the rows of two tables."""

    def look() -> None:
        with create_or_open(place, read_only=True) as lake:
            lake.query("SELECT (SELECT count(phash) FROM image_hash), (SELECT count(rows) FROM partitions)")

    return statistics.median(timed(look).cpu for _ in range(5))


def night(place: Path, number: int, is_maintained: bool) -> Measured:
    """Let a lake grow for one night and maintain it, or not; return what was measured afterwards."""
    commits = grown(place, number)
    if is_maintained:
        with create_or_open(place) as lake:
            list(maintain_steps(lake, Limits()))
    day_passes(place)
    files = list((place / "data").rglob("*.parquet"))
    with create_or_open(place, read_only=True) as lake:
        n_files = len(snapshot.files(lake.unchecked))
    found = {
        "files": n_files,
        "mb": sum(path.stat().st_size for path in files) / 1e6,
        "catalog_mb": (place / "catalog.sqlite").stat().st_size / 1e6,
        "statements_s": statements(place),
        "open_s": opening(place),
        "commit_s": statistics.median(commits),
    }
    print("maintained" if is_maintained else "left alone", number + 1, found, flush=True)
    return found


WHAT = {"files": ("files of all tables", "files"), "statements_s": ("a statement on each table", "CPU s"),
        "mb": ("data on disk", "MB"), "catalog_mb": ("catalog", "MB"), "open_s": ("opening and counting", "CPU s"),
        "commit_s": ("median commit", "CPU s")}  # fmt: skip


def row(key: str, kept: list[Measured], alone: list[Measured]) -> Row:
    """Compare the last nights of the maintained lake with those of the other; the note has the nights around EARLY."""
    what, unit = WHAT[key]
    early = min(EARLY, len(kept))
    of_nights = (kept[early - 2 : early + 1], kept[-3:], alone[-3:])
    first, last, other = (statistics.median(night[key] for night in nights) for nights in of_nights)
    bounded = {"files": 1.2, "statements_s": 1.2, "commit_s": 2.0}.get(key)
    target = f"night {len(kept)} <= {bounded:g} x night {early}" if bounded else ""
    met = last <= bounded * first if bounded else None
    note = f"night {early}: {first:.3g}, night {len(kept)}: {last:.3g}, {last / first:.2f} x"
    name = f"{what} after {len(kept)} nights"
    return Row(name, unit, last, other, "left alone", other / last, target=target, met=met, note=note)


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--nights", type=int, default=30)
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / "kept", Path(folder) / "alone"]
        found = [[night(place, n, place is places[0]) for place in places] for n in range(options.nights)]
    kept, alone = (list(each) for each in zip(*found, strict=True))
    finish("nights", [row(key, kept, alone) for key in WHAT], options, kept=kept, alone=alone)


if __name__ == "__main__":
    main()
