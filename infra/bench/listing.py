"""Benchmark the memory of listing a source of many small files and cutting it into shards, against holding all at once.

Each figure has a process of its own. The pages are not on disk: listing a real folder would only add time.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from infra.bench import measure

PEER = "infra.bench.peers.list_pages"
ALL = {"names": "the names, sizes and etags alone", "source": "units of a source", "shards": "units, cut into shards"}


def main() -> None:
    """Run the bench and write its result."""
    parser = measure.parser(__doc__)
    parser.add_argument("--pages", type=int, default=500_000, help="in the smaller source; the other has four times")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="listing-bench-"))
    try:
        seen = {mode: [_grown(mode, n, folder) for n in (options.pages, 4 * options.pages)] for mode in (*ALL, "whole")}
    finally:
        shutil.rmtree(folder)
    per_million = {mode: (large - small) / (3 * options.pages / 1e6) for mode, (small, large) in seen.items()}
    ratio = per_million["whole"] / per_million["shards"]
    rows = [
        measure.Row(
            "memory a million files, listed and cut into shards",
            "MB",
            per_million["shards"],
            per_million["whole"],
            "held whole, as before",
            ratio,
            target=">= 2 x less",
            met=ratio >= 2,
        )
    ]
    for mode, what in ALL.items():
        small, large = seen[mode]
        note = f"{small:.0f} MB at {options.pages}, {large:.0f} MB at {4 * options.pages}"
        flat = {"target": "flat: <= 1.2", "met": large <= 1.2 * small} if mode == "shards" else {}
        rows.append(measure.Row(f"{what}, four times as many files", "times", large / small, note=note, **flat))
    measure.finish("listing", rows, options)


def _grown(mode: str, n: int, folder: Path) -> float:
    """Return the MB by which a process of ``mode`` grows with ``n`` files."""
    lake = folder / f"{mode}-{n}"
    ran = subprocess.run([sys.executable, "-m", PEER, mode, str(n), str(lake)], capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(ran.stderr[-2000:])
    return float(ran.stdout.split()[-1])


if __name__ == "__main__":
    main()
