"""Benchmark `pairmill verify` at size on synthetic metadata: cut whole clusters again, and compare with the version.

    python -m infra.bench.verify --images 1000000 [--folder DIR]

Measures the seconds of filling the lake, of cutting and publishing it, and of the verification. The headline is the CPU
time of the cut over that of the verification: a ratio of one run, so it holds on a busy machine too.
"""

import tempfile
from pathlib import Path

from infra.bench.made_lake import fill, plan
from infra.bench.measure import Row, finish, parser, peak_mb, timed
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import Published, publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.verification import Verification, verify
from pairmill.catalog.queries.datasets import find


def main() -> None:
    """Fill a lake, publish its cut, verify it, and store the CPU time of each and what was compared."""
    found = parser(__doc__)
    found.add_argument("--images", type=int, default=1_000_000)
    found.add_argument("--folder", type=Path, default=None, help="where the lake is made; a temporary one without")
    options = found.parse_args()
    published: list[Published] = []
    results: list[Verification] = []
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        create_or_open(Path(folder) / "lake") as lake,
    ):
        filled = timed(lambda: fill(lake, options.images))
        decided = timed(lambda: cut(lake, plan()))
        written = timed(lambda: published.append(publish(lake, plan(), "run", None, lambda: 2)))
        dataset = find(lake, f"{published[0].name}@{published[0].version}")
        verified = timed(lambda: results.append(verify(lake, dataset)))
    (result,) = results
    compared = f"{result.images:,} of {result.of:,} decisions and {result.pairs:,} pairs, {result.differing:,} differ"
    rows = [
        Row(
            "verify a version", "CPU s", verified.cpu, decided.cpu, "the cut", decided.cpu / verified.cpu, note=compared
        ),
        Row("verify a version", "wall s", verified.wall, note=f"peak memory of the process {peak_mb():.0f} MB"),
        Row("cut", "wall s", decided.wall),
        Row("publish", "wall s", written.wall, note=f"{written.cpu:.3g} CPU s"),
        Row("fill the lake", "wall s", filled.wall),
    ]
    finish("verify", rows, options)


if __name__ == "__main__":
    main()
