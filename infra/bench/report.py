"""Measure the report of a large dataset version: ``python -m infra.bench.report --images 1000000``.

Makes a lake of synthetic metadata without pictures' bytes, cuts and publishes it, and prints the seconds, CPU seconds
and memory of the report. Reading and encoding some 700 pictures comes on top: 2 to 7 CPU ms each.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from infra.bench.made_lake import SCORERS, fill, plan
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.catalog.write.scorer import Scorer
from pairmill.tasks.out.html_report import write_report


def main() -> None:
    """Make the lake in a process of its own lease, then write the report as a reader."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--images", type=int, default=1_000_000)
    n = options.parse_args().images
    with tempfile.TemporaryDirectory() as folder:
        _publish(f"{folder}/lake", n)
        begun, cpu = time.perf_counter(), time.process_time()
        with create_or_open(f"{folder}/lake", read_only=True) as lake:
            path = write_report(lake, "big", 1, f"{folder}/report.html")
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        size = Path(path).stat().st_size / 1e6
        print(f"{n:,} images: {seconds:.1f} s, {cpu_seconds:.1f} CPU s, {memory:.2f} GB most, page of {size:.2f} MB")


def _publish(uri: str, n: int) -> None:
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
