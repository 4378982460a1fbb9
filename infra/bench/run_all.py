"""Every bench, one after another, then their table: ``python -m infra.bench.run_all [--photos FOLDER]``.

``make bench`` does this, ``make bench PHOTOS=FOLDER`` with photographs instead of generated pictures.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from infra.bench import table

PICTURES = ("decode", "image_pass", "ingest", "fetch")  # the benches that read some


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--photos", help="folder of photographs")
    photos = options.parse_args().photos
    failed = []
    for name in table.NAMES:
        started = time.monotonic()
        print(f"--- {name}", flush=True)
        words = ["--photos", photos] if photos and name in PICTURES else []
        if subprocess.run([sys.executable, "-m", f"infra.bench.{name}", *words]).returncode:
            failed.append(name)
        print(f"--- {name}: {(time.monotonic() - started) / 60:.1f} min", flush=True)
    table.main()
    print(table.table())
    if failed:
        sys.exit(f"failed, so their rows are those of an older run or missing: {', '.join(failed)}")


if __name__ == "__main__":
    main()
