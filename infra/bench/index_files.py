"""Benchmark the merging of a vector index: the files that a search opens, and the vectors merged a CPU second.

Run as ``python -m infra.bench.index_files [--files N]``. The files that are counted have 16 rows each, and as many
ranges as an index of that many full files has. Opens of a search are counted on a few ranges; those of the merge, and
of its manifests once a process, are added. The rate is of files with 1,024 dimensions, by the ranges of RealSyn's size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fsspec.implementations.local as local
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from infra import scale
from infra.bench.measure import Row, exponent, finish, parser, peak_mb, timed
from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items.index_rows import COLUMNS, FOLDER, MANIFEST, MergeIndex, groups, read_range
from pairmill.tasks.run.items.rows import to_blobs

SAMPLED = 3


def index(folder: Path, files: int, rows: int, width: int, clusters: int) -> tuple[str, ...]:
    """Write ``files`` files of an index, each sorted by cluster; return their paths."""
    rng, paths = np.random.default_rng(0), []
    for n in range(files):
        path = folder / f"{n:06}.parquet"
        table = {"key": [f"{n * rows + row:032x}" for row in range(rows)],
                 "cluster": pa.array(np.sort(rng.integers(0, clusters, rows)), pa.int32()),
                 "index_vector": to_blobs(rng.standard_normal((rows, width)).astype(np.float16)),
                 "commit": pa.array(np.zeros(rows, np.int64))}  # fmt: skip
        pq.write_table(pa.table(table), path, compression="zstd", write_page_checksum=True)
        paths.append(str(path))
    return tuple(paths)


@contextmanager
def opens() -> Iterator[list[str]]:
    """Collect the paths of local files that fsspec opens in the ``with`` block."""
    found: list[str] = []
    open_file = local.LocalFileOpener._open

    def opened(file: Any) -> None:
        if file.f is None or file.f.closed:
            found.append(file.path)
        open_file(file)

    with patch.object(local.LocalFileOpener, "_open", opened):
        yield found


def merge(folder: Path, split: list[tuple[str, ...]], lasts: tuple[int, ...]) -> None:
    """Merge each of the groups ``split`` of index files below ``folder``."""
    for group in split:
        MergeIndex(f"{folder}/", lasts)(WorkItem("merge", (), group))


def counted(folder: Path, n: int) -> dict[str, float]:
    """Return the opens of one search of an index of ``n`` files, by its own files and by merged ones, and CPU s."""
    ranges = round(n * scale.ASSIGNED / 125_000)
    lasts = tuple(10 * number + 9 for number in range(ranges))
    paths = index(folder, n, 16, 8, 10 * ranges)
    with opens() as merging:
        took = timed(lambda: merge(folder, groups(paths), lasts))
    merged = tuple(str(p) for p in sorted((folder / FOLDER).iterdir()) if not p.name.endswith(MANIFEST))
    read_range(merged, COLUMNS, (0, 9), False)  # manifests are read once a process
    spans = [(lasts[at] - 9, lasts[at]) for at in np.linspace(0, ranges - 1, SAMPLED).astype(int)]
    with opens() as after:
        new = [read_range(merged, COLUMNS, span, False).sort_by("key") for span in spans]
    with opens() as before:
        old = [read_range(paths, COLUMNS, span, False).sort_by("key") for span in spans[:1]]
    assert new[0].equals(old[0])
    total = len(merging) + len(merged) + len(after) * ranges // SAMPLED
    return {"files": n, "ranges": ranges, "before": len(before) * ranges, "after": total, "merge_cpu_s": took.cpu}


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    options.add_argument("--files", type=int, default=20_000)
    options = options.parse_args()
    found = []
    for n in (options.files // 4, options.files // 2, options.files):
        with tempfile.TemporaryDirectory() as folder:
            found.append(counted(Path(folder), n))
        print(found[-1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        ranges = round(scale.ranges(scale.MEANINGFUL))
        paths = index(Path(folder), 8, 32_768, scale.DIMENSION, 200 * ranges)
        lasts = tuple(200 * n + 199 for n in range(ranges))
        took = timed(lambda: merge(Path(folder), [paths], lasts))
        size = sum(path.stat().st_size for path in (Path(folder) / FOLDER).iterdir())
    grown = exponent([each["files"] for each in found], [each["after"] for each in found])
    last, vectors = found[-1], 8 * 32_768
    note = f"exponent {grown:.3f}; the merge itself {last['merge_cpu_s']:.0f} CPU s"
    rows = [
        Row(f"opens of a search of {last['files']:,} index files", "opens", last["after"], last["before"], "unmerged",
            last["before"] / last["after"], target="<= 2M, exponent <= 1.1",
            met=last["after"] <= 2e6 and grown <= 1.1, note=note),
        Row("an index of 1,024 dimensions, merged", "vectors/CPU s", vectors / took.cpu,
            note=f"{size / vectors:,.0f} bytes a vector on disk; peak {peak_mb():,.0f} MB"),
    ]  # fmt: skip
    finish("index_files", rows, options, sizes=found)


if __name__ == "__main__":
    main()
