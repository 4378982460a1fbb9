"""Benchmark commit latency over many commits of one small file each, with maintenance between: SQLite and Postgres.

Every 1,000 commits the lake is checkpointed and swept. A sweep expires snapshots of last week, so the bench dates the
metadata's snapshots back by 8 days. Run as ``python -m infra.bench.commits [--commits N]``. The bench starts Postgres
itself, as another user if this one is root, and skips it with a message if it is not installed. SQLite and Postgres
run side by side, one process each.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench.measure import Row, finish, parser, peak_mb
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest
from pairmill.catalog.write.lease import Writer
from pairmill.catalog.write.sweep import checkpoint, sweep

EVERY = 1_000


def partition(writer: Writer, number: int) -> Manifest:
    """Write ten rows to a Parquet file of their own, as a worker does; return its manifest."""
    name = f"c{number}"
    path = f"{writer.lake.staging('image_hash', 'bench')}/{name}.parquet"
    columns = {"sha256": [f"{number:031x}{n}" for n in range(10)], "shard": [name] * 10, "scorer": ["h"] * 10}
    numbers = pa.array(range(number * 10, number * 10 + 10), pa.uint64())
    rows = pa.table(
        columns
        | {"commit": pa.array([1] * 10, pa.int64()), "phash": numbers, "flat_colours": pa.nulls(10, pa.string())}
    )
    pq.write_table(rows, path)
    return Manifest("image_hash", name, name, "h", 10, os.path.getsize(path), 0.1, path, 1, "bench")


def measured(place: Path, n: int, with_postgres: bool) -> tuple[list[float], list[dict[str, float]]]:
    """Return the wall seconds of each commit, and the lake's size after each maintenance."""
    seconds, weights = [], []
    with create_or_open(place) as lake, lease.writing(lake, "bench", "commits") as writer:
        for number in range(n):
            made = partition(writer, number)
            started = time.perf_counter()
            writer.commit([made])
            seconds.append(time.perf_counter() - started)
            if (number + 1) % EVERY == 0:
                weights.append(_maintained(writer, place, with_postgres))
                said = f"{number + 1} commits, p99 {_p99(seconds[-EVERY:]):.3f} s"
                print("Postgres" if with_postgres else "SQLite", said, weights[-1], flush=True)
        assert lake.query("SELECT count(*), count(DISTINCT phash) FROM image_hash") == [(10 * n, 10 * n)]
    return seconds, weights


def _maintained(writer: Writer, place: Path, with_postgres: bool) -> dict[str, float]:
    """Checkpoint and sweep the lake; return the seconds taken, files, MB on disk and peak memory in MB."""
    metadata = writer.lake.metadata
    started = time.perf_counter()
    checkpoint(writer)
    week = "now() - INTERVAL 8 DAY"
    metadata.write(f"UPDATE ducklake_snapshot SET snapshot_time = {week if with_postgres else f'({week})::VARCHAR'}")
    writer.begin("maintenance")  # the newest snapshot never expires, so make one of today
    sweep(writer, older_than_seconds=-3600)
    took = time.perf_counter() - started
    files = [path for path in place.rglob("*") if path.is_file()]
    mb = round(sum(f.stat().st_size for f in files) / 1e6, 1)
    return {"seconds": round(took, 1), "files": len(files), "mb": mb, "memory_mb": round(peak_mb())}


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Start a Postgres server under ``folder``; yield its URL and stop the server afterwards."""
    run_as = []
    if os.getuid() == 0:
        shutil.chown(folder, "nobody")
        run_as = ["setpriv", "--reuid=nobody", "--clear-groups"]
    binaries = Path(os.path.realpath(shutil.which("postgres") or "")).parent
    init = [*run_as, str(binaries / "initdb"), "-D", str(folder / "pg"), "-A", "trust", "-U", "me"]
    subprocess.run(init, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start = [*run_as, str(binaries / "postgres"), "-D", str(folder / "pg"), "-p", str(port), "-h", "127.0.0.1"]
    with subprocess.Popen([*start, "-k", str(folder)], stderr=subprocess.DEVNULL, cwd=folder) as server:
        url = f"postgresql://me@127.0.0.1:{port}/postgres"
        try:
            _wait(url)
            yield url
        finally:
            server.terminate()


def _wait(url: str) -> None:
    """Wait at most 30 s until Postgres answers."""
    for _ in range(300):
        try:
            connect("postgres_scanner").execute(f"ATTACH '{url}' AS probe (TYPE postgres)")
            return
        except duckdb.Error:
            time.sleep(0.1)
    raise TimeoutError("Postgres does not answer")


def _p99(seconds: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]


def row(name: str, seconds: list[float], weights: list[dict[str, float]]) -> Row:
    """Compare the latency of the last ``EVERY`` commits with that of the first ones."""
    part = min(EVERY, max(1, len(seconds) // 2))
    start, end = _p99(seconds[:part]), _p99(seconds[-part:])
    medians = [statistics.median(each) for each in (seconds[:part], seconds[-part:])]
    note = f"median {medians[0]:.3f} s, then {medians[1]:.3f} s"
    if weights:
        note += (
            f"; after maintenance {weights[0]['files']} files {weights[0]['mb']} MB, at the end {weights[-1]['files']}"
        )
        note += f" files {weights[-1]['mb']} MB; a maintenance {weights[-1]['seconds']} s"
        note += f"; the process held {weights[0]['memory_mb']} MB, then {weights[-1]['memory_mb']}"
    return Row(f"p99 of a commit, the last {part} of {len(seconds)}, {name}", "wall s", end, start, f"the first {part}",
               start / end, target="end <= 2 x start", met=end <= 2 * start, note=note)  # fmt: skip


def on_sqlite(n: int) -> tuple[list[float], list[dict[str, float]]]:
    """Measure ``n`` commits to a lake whose metadata is in SQLite."""
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder) / "lake", n, False)


def on_postgres(n: int) -> tuple[list[float], list[dict[str, float]]]:
    """Measure ``n`` commits to a lake whose metadata is in Postgres."""
    with tempfile.TemporaryDirectory() as folder, postgres(Path(folder)) as url:
        place = Path(folder) / "lake"
        place.mkdir()
        (place / "lake.yaml").write_text(f"metadata: {url}\ndata_path: data\n")
        return measured(place, n, True)


NAMES = {on_sqlite: "SQLite", on_postgres: "Postgres"}


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--commits", type=int, default=10_000)
    options = options.parse_args()
    measure = [on_sqlite, on_postgres] if shutil.which("postgres") else [on_sqlite]
    with ProcessPoolExecutor(len(measure), multiprocessing.get_context("spawn")) as processes:
        running = {each: processes.submit(each, options.commits) for each in measure}
        rows = [row(NAMES[each], *future.result()) for each, future in running.items()]
    if len(measure) == 1:
        print("Postgres is not installed: left out")
    finish("commits", rows, options)


if __name__ == "__main__":
    main()
