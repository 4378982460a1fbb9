"""Measure the report of a large dataset version: ``python -m infra.bench.report --images 1000000``.

Makes a lake of synthetic metadata without pictures' bytes, cuts and publishes it, and prints the seconds, CPU seconds
and memory of the report. Reading and encoding some 700 pictures comes on top: 2 to 7 CPU ms each.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from pathlib import Path

from infra.bench.made_lake import SCORERS, fill, plan
from infra.bench.measure import Row, finish, parser, peak_mb, timed
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.pages.html_report import write_report


def main() -> None:
    """Make the lake in another process, then write the report as a reader."""
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=1_000_000)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        lake_uri = f"{folder}/lake"
        making = multiprocessing.get_context("spawn").Process(target=publish_made, args=(lake_uri, given.images))
        making.start()  # in another process, whose memory is not the report's
        making.join()
        with create_or_open(lake_uri, read_only=True) as lake:
            taken = timed(lambda: write_report(lake, "big", 1, f"{folder}/report.html"))
        size = Path(f"{folder}/report.html").stat().st_size / 1e6
    report = f"report of {given.images:,} images"
    finish("report", [
        Row(report, "CPU s", taken.cpu, note=f"{taken.wall:.1f} wall s"),
        Row("memory of the process at most", "GB", peak_mb() / 1000),
        Row("page, without pictures", "MB", size, target="< 10 MB", met=size < 10),
    ], given)  # fmt: skip


def publish_made(uri: str, n: int) -> None:
    """Fill a lake with ``n`` images and publish the cut of a recipe of cheap rules."""
    cheap = plan()
    with create_or_open(uri) as lake:
        fill(lake, n)
        lake.execute("DELETE FROM image_embedding")  # placeholders, not vectors
        lake.execute("UPDATE scorers SET settings = '{}', libraries = '{}'")
        with lease.writing(lake, "made", "bench") as writer:
            writer.begin("ingest", [Scorer(name, name, 1, {}, "0" * 32) for name in SCORERS])
            cut(lake, cheap)
            publish(lake, cheap, "made", 0.9, lambda: writer.begin("publish"))


if __name__ == "__main__":
    main()
