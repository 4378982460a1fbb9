"""Every bench, one after another, then their table: ``python -m infra.bench.run_all [--photos FOLDER]``.

``make bench`` does this, ``make bench PHOTOS=FOLDER`` with photographs instead of generated pictures. It takes hours,
so one that was interrupted goes on when it is run again: what has a result of this commit on this CPU is passed over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time

from infra.bench import measure, table

PICTURES = ("decode", "image_pass", "ingest", "fetch")  # the benches that read some


def done(name: str, words: list[str]) -> bool:
    """Whether this very code, without changes, was measured here in this way."""
    try:
        result = json.loads((measure.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    made = (result.get("commit"), result["machine"]["cpu"], result["command"])
    return made == (measure.commit() or "unknown", measure.machine()["cpu"], measure.command(name, words))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--photos", help="folder of photographs")
    photos = options.parse_args().photos
    failed = []
    for name in table.NAMES:
        started = time.monotonic()
        words = ["--photos", photos] if photos and name in PICTURES else []
        if done(name, words):
            print(f"--- {name}: of this commit already", flush=True)
            continue
        print(f"--- {name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"infra.bench.{name}", *words]).returncode:
            failed.append(name)
        print(f"--- {name}: {(time.monotonic() - started) / 60:.1f} min", flush=True)
    table.main()
    print(table.table())
    if failed:
        sys.exit(f"failed, so their rows are those of an older run or missing: {', '.join(failed)}")


if __name__ == "__main__":
    main()
