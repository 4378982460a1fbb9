"""Benchmark `pairmill verify` at size on synthetic metadata: cut whole clusters again, and compare with the version.

    python -m infra.bench.verify --images 1000000 [--folder DIR]

Prints the seconds of filling the lake, of cutting and publishing it, and of the verification.
"""

import argparse
import tempfile
from pathlib import Path

from infra.bench.made_lake import fill, plan
from infra.bench.measure import timed
from pairmill.catalog.ask.datasets import find
from pairmill.catalog.ask.verification import verify
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open


def main() -> None:
    """Fill a lake, publish its cut, verify it, and print the times and the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1_000_000)
    parser.add_argument("--folder", type=Path, default=None, help="where the lake is made; a temporary one without")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        create_or_open(Path(folder) / "lake") as lake,
    ):
        print(f"{options.images:,} images filled in {timed(lambda: fill(lake, options.images)).wall:.1f} s", flush=True)
        print(f"cut in {timed(lambda: cut(lake, plan())).wall:.1f} s", flush=True)
        published = publish(lake, plan(), "run", None, lambda: 2)
        found = []
        seconds = timed(lambda: found.append(verify(lake, find(lake, f"{published.name}@{published.version}")))).wall
        (result,) = found
        print(
            f"verified in {seconds:.1f} s: {result.images:,} of {result.of:,} decisions and {result.pairs:,} pairs, "
            f"{result.differing:,} differ {result.shown[:3]}"
        )


if __name__ == "__main__":
    main()
